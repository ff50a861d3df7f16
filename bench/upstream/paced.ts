/** Paced streams with a provider behind HTTP: what Penstock adds to each delta, and what an open stream costs. */
import { setTimeout as sleep } from "node:timers/promises";
import { childrenOf, cpuSeconds, ended, firstMessage, LOAD_CORE, openFiles, residentMiB, spawnOn } from "../process.ts";
import { WORDS } from "../replies.ts";
import type { Figure } from "../special.ts";
import { ROOT, type Running, startProvider } from "../targets.ts";
import type { PacedJob, PacedReport } from "./paced-worker.ts";
import { startFloor, startOver, type UpstreamOptions } from "./run.ts";

const PACED = { streams: 1_000, every: 20, deltas: 500 };
/** One delta per second: the pace of many readers. */
const OPEN = { streams: 10_000, every: 1_000, seconds: 10 };
/** Open files of a process in addition to its streams. */
const OTHER_FILES = 500;
const SETTLE = 2_000;

type Plan = Pick<UpstreamOptions, "entry" | "transport">;
type Job = Omit<PacedJob, "port">;

async function run(port: number, job: Job): Promise<{ report: PacedReport; stop(): Promise<void> }> {
  const args = ["--import", "tsx", "bench/upstream/paced-worker.ts", JSON.stringify({ ...job, port })];
  const child = spawnOn(LOAD_CORE, process.execPath, args, { cwd: ROOT, stdio: ["ignore", "inherit", "pipe", "ipc"] });
  const stop = async () => {
    child.kill("SIGKILL");
    await ended(child, 5_000);
  };
  const report = await firstMessage<PacedReport>(child);
  if (report.good === job.streams) return { report, stop };
  await stop();
  throw new Error(`${report.good} of ${job.streams} streams were whole; one of the others: ${report.problem}`);
}

const input = JSON.stringify({ input: WORDS });
const messages = [{ role: "user", content: WORDS }];
const completion = JSON.stringify({ model: "bench", messages, stream: true });

/** The request for a stream of this speed, by contender. */
const asked = {
  provider: (speed: string) => ({ path: `/${speed}/v1/chat/completions`, body: completion }),
  floor: (speed: string) => ({ path: `/stream/${speed}`, body: input }),
  penstock: () => ({ path: "/agents/paced/stream", body: input }),
  bare: () => ({ path: "/agents/bare-paced/stream", body: input }),
} as const;

type Contender = keyof typeof asked;

async function withServers<T>(plan: Plan, pace: string, use: (servers: Servers) => Promise<T>): Promise<T> {
  const started: Running[] = [];
  const keep = (server: Running) => {
    started.push(server);
    return server;
  };
  try {
    const provider = keep(await startProvider());
    const floor = keep(await startFloor(provider));
    const penstock = keep(await startOver(provider, plan, "upstream", { BENCH_PACE: pace }));
    return await use({ provider, floor, penstock, bare: penstock });
  } finally {
    for (const server of started.reverse()) await server.stop();
  }
}

type Servers = Record<Contender, Running>;

/** The contenders in order, and then in reverse. */
const ORDER: readonly Contender[] = ["provider", "floor", "penstock", "bare"];

const millis = (value: number) => value.toFixed(2);

/** The load tool and the provider are no bottleneck as long as the provider's own row is small. */
export function paced(plan: Plan): Promise<Figure[]> {
  const speed = `paced/${PACED.every}/${PACED.deltas}`;
  return withServers(plan, speed, async (servers) => {
    const seen = new Map<string, { p99: number; note: string }>();
    for (const name of [...ORDER, ...ORDER.toReversed()]) {
      const server = servers[name];
      const before = cpuSeconds(server.pid);
      const began = performance.now();
      const { streams, deltas } = PACED;
      const { report, stop } = await run(server.port, { ...asked[name](speed), streams, deltas, seconds: 0 });
      await stop();
      const share = ((cpuSeconds(server.pid) - before) * 100_000) / (performance.now() - began);
      const { p50, p99, longest, load } = report;
      const cores = `${share.toFixed(0)} % of a core, the load ${(load * 100).toFixed(0)} %`;
      const note = `p50 ${millis(p50)}, longest ${millis(longest)}, ${cores}`;
      // The better of two runs: disturbances make a run longer, never shorter.
      if (p99 < (seen.get(name)?.p99 ?? Number.POSITIVE_INFINITY)) seen.set(name, { p99, note });
    }
    const direct = seen.get("provider")!;
    const added = (name: string, title: string, aim: number | null): Figure => {
      const { p99, note } = seen.get(name)!;
      return { scenario: "paced", label: `${title}: added p99 per delta, ms`, value: p99 - direct.p99, aim, note };
    };
    return [
      { scenario: "paced", label: "the provider itself: p99, ms", value: direct.p99, aim: null, note: direct.note },
      added("floor", "floor", null),
      added("penstock", "Penstock", 0),
      added("bare", "Penstock over the floor's own client", null),
    ];
  });
}

export function open(plan: Plan): Promise<Figure[]> {
  const every = `paced/${OPEN.every}/1000000`;
  return withServers(plan, every, async ({ provider, penstock }) => {
    // A stream takes two open files of Penstock, one of the client and one of the provider.
    const streams = Math.min(OPEN.streams, Math.floor((openFiles() - OTHER_FILES) / 2));
    const job = { streams, deltas: null, seconds: OPEN.seconds };
    const direct = await run(provider.port, { ...asked.provider(every), ...job });
    await direct.stop();
    // A warm-up, because compiled code and the first growth of the heap belong to the server, not to the streams.
    const warm = await run(penstock.port, { ...asked.penstock(), ...job, streams: 500, seconds: 2 });
    await warm.stop();
    await sleep(SETTLE);
    const before = residentMiB(penstock.pid);
    const held = await run(penstock.port, { ...asked.penstock(), ...job });
    const during = residentMiB(penstock.pid);
    await held.stop();
    await sleep(SETTLE);
    const after = residentMiB(penstock.pid);
    const limited = streams < OPEN.streams ? `only ${streams}: open files are limited to ${openFiles()}; ` : "";
    const helpers = childrenOf(penstock.pid).length;
    const resident = `resident ${before.toFixed(0)} MiB before, ${during.toFixed(0)} with them open, ${after.toFixed(0)} after`;
    const { p50, longest } = held.report;
    return [
      {
        scenario: "open",
        label: "memory per open stream, KiB",
        value: ((during - before) * 1024) / streams,
        aim: 0,
        note: `${limited}${resident}${helpers > 0 ? `, without ${helpers} helpers` : ""}`,
      },
      {
        scenario: "open",
        label: "added p99 per delta, ms",
        value: held.report.p99 - direct.report.p99,
        aim: 1,
        note: `p50 ${millis(p50)}, longest ${millis(longest)}; the provider itself: p99 ${millis(direct.report.p99)}`,
      },
    ];
  });
}
