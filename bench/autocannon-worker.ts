/** Runs autocannon in a separate process: one job as JSON in the first argument, counts as JSON on stdout. */
import { randomUUID } from "node:crypto";
import autocannon, { type AutocannonRequest } from "autocannon";
import { checked, idIn } from "./capture.ts";
import type { Counts, Load } from "./load.ts";
import { createPicker, fill, ID } from "./numbers.ts";
import { httpScenarios, SCENARIOS } from "./scenarios.ts";

interface Job extends Load {
  port: number;
  name: string;
  /** Characters of sample bodies: most replies with about such a length are not checked individually. */
  lengths: number[];
}

/** One body in this many is parsed and checked completely; parsing each would make the load tool the bottleneck. */
const SAMPLED = 128;
/** Numbers and times inside a body may differ by some digits in length. */
const TOLERANCE = 32;

const job = JSON.parse(process.argv[2] as string) as Job;
const scenario = httpScenarios(SCENARIOS).find((row) => row.name === job.name);
if (scenario === undefined) throw new Error(`no scenario "${job.name}"`);

let seen = 0;
const { method, path, body, numbers, keyed, next } = scenario;
const pick = numbers && createPicker(numbers);
/** Sets path and body of a request that differs from the previous one. */
const setupRequest = (request: AutocannonRequest) => {
  const number = pick!();
  request.path = fill(path, number);
  if (body !== null) request.body = fill(body, number);
  if (keyed) request.headers = { ...request.headers, "idempotency-key": randomUUID() };
  return request;
};
/** The first of two requests on a connection stores the id that the second needs. */
const pairs = next && [
  {
    onResponse: (_status: number, reply: string, context: { id?: string }) => {
      context.id = idIn(next.id, reply);
    },
  },
  {
    setupRequest: (request: AutocannonRequest, context: { id?: string }) => ({
      ...request,
      path: next.path.replace(ID, context.id ?? ""),
      body: next.body,
    }),
  },
];

const result = await autocannon({
  url: `http://127.0.0.1:${job.port}${fill(path, 0)}`,
  connections: job.connections,
  duration: job.seconds,
  method,
  headers: { ...scenario.headers?.(), ...(body !== null && { "content-type": "application/json" }) },
  ...(body !== null && { body: fill(body, 0) }),
  ...(pick && { requests: [{ setupRequest }] }),
  ...(pairs && { requests: pairs }),
  verifyBody: (body) => {
    seen += 1;
    if (!job.lengths.some((length) => Math.abs(body.length - length) <= TOLERANCE)) return false;
    return seen % SAMPLED !== 1 || checked(scenario, body) === null;
  },
});

const counts: Counts = {
  requests: result["2xx"],
  seconds: result.duration,
  p50: result.latency.p50,
  p99: result.latency.p99,
  failures: result.errors + result.timeouts + result.non2xx + result.mismatches,
};
process.stdout.write(JSON.stringify(counts));
