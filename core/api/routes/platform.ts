/** Probes and metrics, updates of packages and the environment file. */

import type { Service } from "../../app/service.ts";
import { JSON_TYPE } from "../../http/encode.ts";
import type { PageReply } from "../../http/route.ts";
import { STREAM_FAILURE } from "./agents.ts";
import { get, observe, post } from "./row.ts";

// Package updates, reloads of the manifest, and the keys of the observability service.

export const UPDATE_ROUTES = [
  get("/updates", "updates.list", "Check for newer versions of packages", {
    group: "updates",
    description: "What `npm outdated` said last, while it is asked again; the first call waits for it, at most 10 s.",
    pages: "named",
    output: "UpdateList",
    handle: async (_input, { service }) => (await service.platform.updates()).list(),
  }),
  post("/updates", "updates.install", "Install newer versions of packages", {
    group: "updates",
    description:
      "Of one, or of all that have one. Only where the manifest has `updates.install: true`, and one at a time.",
    body: "UpdateRequest",
    bodyOptional: true,
    pages: "named",
    failures: ["conflict"],
    output: "InstalledUpdates",
    handle: async ({ body }, { service }) => (await service.platform.updates()).install(body.packageName),
  }),
  post("/updates/:packageName", "updates.installOne", "Install the newest version of one package", {
    group: "updates",
    description: "A name with a scope is one segment: `@scope%2Fname`.",
    pages: "named",
    failures: ["conflict"],
    output: "InstalledUpdates",
    handle: async ({ params }, { service }) => (await service.platform.updates()).install(params.packageName!),
  }),
  post("/reload", "manifest.reload", "Read the manifest again and serve it", {
    group: "observability",
    description:
      "What is running ends on the manifest that it began with. A manifest that cannot be served is answered with 400 and all of its errors, and changes nothing.",
    pages: "named",
    output: "Reloaded",
    handle: (_input, { service }) => service.reload(),
  }),
  post(
    "/observability/commands",
    "commands.run",
    "Run a command of the command line on the SQLite store of this service",
    {
      group: "observability",
      description:
        "What the command line asks for while this service has the file. The events are the lines that it prints.",
      body: "RunCommandRequest",
      pages: "named",
      failures: ["not_found", "conflict"],
      output: { events: "CommandEvent", failure: STREAM_FAILURE },
      handle: async ({ body }, call) => (await import("../../upkeep/store-commands.ts")).runCommand(call, body),
    },
  ),
  post(
    "/setup-observability",
    "observability.setup",
    "Write the keys of the observability service to the environment file",
    {
      group: "observability",
      description: "Changes `.env` beside the manifest and leaves everything else in it as it is.",
      body: "SetupObservabilityRequest",
      pages: "named",
      failures: ["conflict"],
      output: "SetupResult",
      async handle({ body }, { service }) {
        const file = await service.platform.environmentFile();
        await file.set({ SERVICE_PUBLIC_KEY: body.publicKey, SERVICE_SECRET_KEY: body.secretKey });
        return { message: "the keys are in .env: they count from the next start on" };
      },
    },
  ),
];

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
