/** What traces cost a server that has run for long, or that has many watchers. */
import { get } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { capture } from "./capture.ts";
import { type Load, runLoad, type Tool } from "./load.ts";
import { median } from "./measure.ts";
import { residentMiB } from "./process.ts";
import { plainScenarios } from "./scenarios.ts";
import { openSockets } from "./socket-measures.ts";
import type { Figure } from "./special.ts";
import type { Running } from "./targets.ts";
import type { WatchersJob } from "./watchers-worker.ts";

const SPANS = 1_000_000;
const WATCHERS = { sockets: 10_000, runs: 2_000 };
/** Seconds of watching; the next constant is the milliseconds between two probes. */
const WATCHED = 10;
const PROBE = 10;
/** Seconds before memory is read. */
const SETTLE = 2;
const LOOKS = 21;

interface Reply {
  status: number;
  millis: number;
  text: string;
}

function ask(port: number, path: string): Promise<Reply> {
  const began = performance.now();
  return new Promise((resolve, reject) => {
    get({ host: "127.0.0.1", port, path, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.once("end", () =>
        resolve({ status: response.statusCode ?? 0, millis: performance.now() - began, text }),
      );
    }).once("error", reject);
  });
}

async function dataOf<T>(port: number, path: string): Promise<T> {
  const { status, text } = await ask(port, path);
  if (status !== 200) throw new Error(`GET ${path} is ${status}: ${text.slice(0, 200)}`);
  return (JSON.parse(text) as { data: T }).data;
}

async function millisOf(port: number, path: string): Promise<number> {
  const millis: number[] = [];
  for (let look = 0; look < LOOKS; look += 1) millis.push((await ask(port, path)).millis);
  return median(millis);
}

const text = () => plainScenarios().find(({ name }) => name === "text")!;

/** Runs agents until a million spans were recorded. */
export async function spans(server: Running, tool: Tool, load: Load): Promise<Figure[]> {
  const { port } = server;
  const scenario = text();
  const sample = await capture(port, scenario);
  const { traces } = await dataOf<{ traces: { spanCount: number }[] }>(port, "/observability/traces?limit=1");
  const each = traces[0]?.spanCount ?? 0;
  if (each === 0) throw new Error("nothing is traced");
  await sleep(SETTLE * 1_000);
  const before = residentMiB(server.pid);
  let runs = 0;
  while (runs * each < SPANS) runs += (await runLoad(tool, server, scenario, load, sample)).requests;
  await sleep(SETTLE * 1_000);
  const { message } = await dataOf<{ message: string }>(port, "/observability/status");
  const note = `${before.toFixed(0)} before; ${(runs * each).toLocaleString("en-US")} spans; ${message}`;
  const scenarioName = "spans";
  const id = (await dataOf<{ traces: { traceId: string }[] }>(port, "/observability/traces?limit=1")).traces[0]!
    .traceId;
  return [
    { scenario: scenarioName, label: "resident after them, MiB", value: residentMiB(server.pid), aim: 0, note },
    {
      scenario: scenarioName,
      label: "the newest 50, ms",
      value: await millisOf(port, "/observability/traces"),
      aim: null,
    },
    {
      scenario: scenarioName,
      label: "a filter that nothing matches, ms",
      value: await millisOf(port, "/observability/traces?entityId=nobody"),
      aim: null,
    },
    {
      scenario: scenarioName,
      label: "one by its id, ms",
      value: await millisOf(port, `/observability/traces/${id}`),
      aim: null,
    },
  ];
}

/** Latency of a probe, and memory, while agents run and all sockets watch. */
export async function watched(server: Running): Promise<Figure[]> {
  const { port, pid } = server;
  const { path, body } = text();
  const job: WatchersJob = { port, watched: "/ws/observability", ...WATCHERS, path, body: body as string };
  const stop = await openSockets(job);
  try {
    await sleep(SETTLE * 1_000);
    const first = residentMiB(pid);
    const { traceCount: ran } = await dataOf<{ traceCount: number }>(port, "/observability/status");
    const began = performance.now();
    const latencies: number[] = [];
    while (performance.now() - began < WATCHED * 1_000) {
      latencies.push((await ask(port, "/healthz")).millis);
      await sleep(PROBE);
    }
    const seconds = (performance.now() - began) / 1000;
    const last = residentMiB(pid);
    const { traceCount } = await dataOf<{ traceCount: number }>(port, "/observability/status");
    const sorted = latencies.sort((a, b) => a - b);
    const p99 = sorted[Math.floor(sorted.length * 0.99)] as number;
    const note = `${Math.round((traceCount - ran) / seconds)} runs/s; p50 ${median(sorted).toFixed(1)} ms`;
    return [
      { scenario: "watched", label: "p99 of GET /healthz, ms", value: p99, aim: 0, note },
      {
        scenario: "watched",
        label: "resident with them, MiB",
        value: last,
        aim: 1,
        note: `${first.toFixed(0)} when they were open`,
      },
    ];
  } finally {
    await stop();
  }
}
