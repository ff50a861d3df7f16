/** The cost of open WebSockets. */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ended, firstMessage, LOAD_CORE, residentMiB, spawnOn } from "./process.ts";
import type { Figure } from "./special.ts";
import { ROOT, type Running } from "./targets.ts";
import type { WatchersJob, WatchersReport } from "./watchers-worker.ts";

const IDLE = 10_000;
const WARM = 500;
/** Seconds before memory is read. */
const SETTLE = 2;

/** Opens all sockets of a job; resolves to a function that closes them. */
export async function openSockets(job: WatchersJob): Promise<() => Promise<void>> {
  const args = ["--import", "tsx", join(ROOT, "bench/watchers-worker.ts"), JSON.stringify(job)];
  const child = spawnOn(LOAD_CORE, process.execPath, args, { cwd: ROOT, stdio: ["ignore", "inherit", "pipe", "ipc"] });
  const stop = async () => {
    child.kill("SIGKILL");
    await ended(child, 5_000);
  };
  const report = await firstMessage<WatchersReport>(child);
  if (report.open === job.sockets) return stop;
  await stop();
  throw new Error(`${report.open} sockets are open: ${report.problem}`);
}

/** Memory of sockets that are open and silent. */
export async function sockets({ port, pid }: Running): Promise<Figure[]> {
  const job = { port, watched: "/ws", runs: 0, path: "", body: "" };
  // A warm-up, because compiled code and the first growth of the heap belong to the server, not to the sockets.
  await (await openSockets({ ...job, sockets: WARM }))();
  await sleep(SETTLE * 1_000);
  const before = residentMiB(pid);
  const stop = await openSockets({ ...job, sockets: IDLE });
  await sleep(SETTLE * 1_000);
  const during = residentMiB(pid);
  await stop();
  await sleep(SETTLE * 1_000);
  const note = `resident ${before.toFixed(0)} MiB before, ${during.toFixed(0)} with them open, ${residentMiB(pid).toFixed(0)} after`;
  const each = ((during - before) * 1024) / IDLE;
  return [{ scenario: "sockets", label: "memory per idle socket, KiB", value: each, aim: 0, note }];
}
