/** The measures that are not requests per second: start, memory, and many parallel streams. */
import { spawnSync } from "node:child_process";
import { get } from "node:http";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { capture } from "./capture.ts";
import { type Load, runLoad, type Tool } from "./load.ts";
import { median } from "./measure.ts";
import type { Options } from "./options.ts";
import { childrenOf, ended, firstMessage, LOAD_CORE, residentMiB, spawnOn } from "./process.ts";
import { WORDS } from "./replies.ts";
import { plainScenarios, type Service, type SpecialScenario } from "./scenarios.ts";
import { sockets } from "./socket-measures.ts";
import type { StreamsJob, StreamsReport } from "./streams-worker.ts";
import { ROOT, type Running } from "./targets.ts";
import { spans, watched } from "./trace-measures.ts";
import { open, paced } from "./upstream/paced.ts";

/** One figure of the report; `aim` is the index into the scenario's aims. */
export interface Figure {
  scenario: string;
  label: string;
  value: number;
  aim: number | null;
  note?: string;
}

interface SpecialPlan extends Load, Pick<Options, "entry" | "transport"> {
  start(service?: Service): Promise<Running>;
  tools: readonly Tool[];
}

const STARTS = 5;
const PACED = { streams: 1_000, deltas: 10 };
const OPEN_STREAMS = 5_000;
/** Seconds before memory is read, so that garbage of the boot or the load has been collected. */
const SETTLE = 2;

function statusOf(port: number, path: string): Promise<number> {
  return new Promise((resolve, reject) => {
    get({ host: "127.0.0.1", port, path, agent: false }, (response) => {
      response.resume().once("end", () => resolve(response.statusCode ?? 0));
    }).once("error", reject);
  });
}

async function streams(job: StreamsJob): Promise<{ report: StreamsReport; stop(): Promise<void> }> {
  const args = ["--import", "tsx", join(ROOT, "bench/streams-worker.ts"), JSON.stringify(job)];
  const child = spawnOn(LOAD_CORE, process.execPath, args, { cwd: ROOT, stdio: ["ignore", "inherit", "pipe", "ipc"] });
  const stop = async () => {
    child.kill("SIGKILL");
    await ended(child, 5_000);
  };
  const report = await firstMessage<StreamsReport>(child);
  if (report.good !== job.streams) {
    await stop();
    throw new Error(`${report.good} of ${job.streams} streams were whole; one of the others: ${report.problem}`);
  }
  return { report, stop };
}

const job = (port: number, agent: string, count: number, hold: boolean, warm = 0): StreamsJob => ({
  port,
  path: `/agents/${agent}/stream`,
  body: JSON.stringify({ input: WORDS }),
  streams: count,
  hold,
  warm,
});

async function withServer<T>(plan: SpecialPlan, use: (server: Running) => Promise<T>, service?: Service): Promise<T> {
  const server = await plan.start(service);
  try {
    return await use(server);
  } finally {
    await server.stop();
  }
}

async function startup(plan: SpecialPlan): Promise<Figure[]> {
  const millis: number[] = [];
  for (let turn = 0; turn < STARTS; turn += 1) {
    await withServer(plan, async (server) => {
      const began = performance.now();
      const status = await statusOf(server.port, "/healthz");
      if (status !== 200) throw new Error(`GET /healthz is ${status}`);
      millis.push(server.bootMillis + performance.now() - began);
    });
  }
  const floor = Array.from({ length: STARTS }, () => {
    const began = performance.now();
    spawnSync(process.execPath, ["-e", "0"]);
    return performance.now() - began;
  });
  const range = `${Math.min(...millis).toFixed(0)} to ${Math.max(...millis).toFixed(0)} in ${STARTS} starts`;
  return [
    { scenario: "startup", label: "start to first reply, ms", value: median(millis), aim: 0, note: range },
    { scenario: "startup", label: "node with an empty script, ms", value: median(floor), aim: null },
  ];
}

/** Memory of a server's helper processes, such as a loader's compiler. */
function childrenNote(pid: number): string {
  const sizes = childrenOf(pid).map(residentMiB);
  const total = sizes.reduce((sum, size) => sum + size, 0);
  return sizes.length === 0 ? "no child processes" : `and ${total.toFixed(0)} MiB in ${sizes.length} child processes`;
}

async function memory(plan: SpecialPlan): Promise<Figure[]> {
  return withServer(plan, async (server) => {
    await sleep(SETTLE * 1_000);
    const idle = residentMiB(server.pid);
    const idleNote = childrenNote(server.pid);
    let requests = 0;
    for (const scenario of plainScenarios()) {
      const sample = await capture(server.port, scenario);
      requests += (await runLoad(plan.tools.at(-1)!, server, scenario, plan, sample)).requests;
    }
    await sleep(SETTLE * 1_000);
    const note = `${requests.toLocaleString("en-US")} requests of all kinds`;
    return [
      { scenario: "memory", label: "resident when idle, MiB", value: idle, aim: 0, note: idleNote },
      { scenario: "memory", label: "resident after load, MiB", value: residentMiB(server.pid), aim: 1, note },
    ];
  });
}

/** Rounds until the code is compiled, as in the warm-up of other scenarios; a fresh process takes a tenth of a second longer. */
const WARM_ROUNDS = 4;

async function pacedScripted(plan: SpecialPlan): Promise<Figure[]> {
  return withServer(plan, async (server) => {
    const seconds: number[] = [];
    for (let turn = 0; turn < 3; turn += 1) {
      const { report, stop } = await streams(job(server.port, "paced", PACED.streams, false, WARM_ROUNDS));
      await stop();
      const expected = PACED.streams * PACED.deltas;
      if (report.deltas !== expected) throw new Error(`${report.deltas} deltas instead of ${expected}`);
      seconds.push(report.seconds);
    }
    const note = `runs: ${seconds.map((value) => value.toFixed(3)).join(", ")}`;
    return [
      { scenario: "paced-scripted", label: "first request to last end, s", value: median(seconds), aim: 0, note },
    ];
  });
}

async function openScripted(plan: SpecialPlan): Promise<Figure[]> {
  return withServer(plan, async (server) => {
    // A warm-up, because compiled code and the first growth of the heap belong to the server, not to the streams.
    const warm = await streams(job(server.port, "assistant", 500, false));
    await warm.stop();
    await sleep(SETTLE * 1_000);
    const before = residentMiB(server.pid);
    const held = await streams(job(server.port, "slow", OPEN_STREAMS, true));
    // Long enough for another delta of each stream.
    await sleep(2 * SETTLE * 1_000);
    const during = residentMiB(server.pid);
    await held.stop();
    await sleep(SETTLE * 1_000);
    const after = residentMiB(server.pid);
    const note = `resident ${before.toFixed(0)} MiB before, ${during.toFixed(0)} with them open, ${after.toFixed(0)} after`;
    const each = ((during - before) * 1024) / OPEN_STREAMS;
    return [{ scenario: "open-scripted", label: "memory per open stream, KiB", value: each, aim: 0, note }];
  });
}

const RUNNERS: Record<SpecialScenario["name"], (plan: SpecialPlan) => Promise<Figure[]>> = {
  paced,
  open,
  startup,
  memory,
  "paced-scripted": pacedScripted,
  "open-scripted": openScripted,
  sockets: (plan) => withServer(plan, sockets),
  spans: (plan) => withServer(plan, (server) => spans(server, plan.tools.at(-1)!, plan), "traces"),
  watched: (plan) => withServer(plan, watched, "traces"),
};

export function runSpecial(scenario: SpecialScenario, plan: SpecialPlan): Promise<Figure[]> {
  return RUNNERS[scenario.name](plan);
}
