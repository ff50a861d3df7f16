/** Probes and metrics. */

import type { Service } from "../../app/service.ts";
import { JSON_TYPE } from "../../http/encode.ts";
import type { PageReply } from "../../http/route.ts";
import { get, observe } from "./row.ts";

/** Not cached: an old reply would say nothing about the current state. */
const FRESH = ["cache-control", "no-store"];

export const PLATFORM_ROUTES = [
  get("/healthz", "platform.health", "Whether the process is up", {
    group: "probe",
    output: { bare: "Liveness", type: JSON_TYPE },
    handle: (): PageReply => ({ body: '{"status":"ok"}', headers: FRESH }),
  }),
  get("/readyz", "platform.readiness", "Whether the service takes requests", {
    group: "probe",
    output: { bare: "Readiness", type: JSON_TYPE },
    handle: (_input, { service }) => (service.stopping ? unready({ status: "stopping" }) : readiness(service)),
  }),
  observe("/metrics", "platform.metrics", "What is counted, for Prometheus", {
    description: "Counters, gauges and histograms in the text format of Prometheus, version 0.0.4.",
    output: { page: "text/plain; version=0.0.4; charset=utf-8" },
    handle: async (_input, { service }): Promise<PageReply> => ({ body: await service.metrics.text(), headers: FRESH }),
  }),
];

const unready = (why: object): PageReply => ({
  status: 503,
  body: JSON.stringify(why),
  headers: [...FRESH, "retry-after", "1"],
});

async function readiness({ store }: Service): Promise<PageReply> {
  const problem = await store.problem();
  if (problem === null) return { body: '{"status":"ready"}', headers: FRESH };
  return unready({ status: "unavailable", reason: problem });
}
