/** How V8 treats the heap of a process that stays. */
import { setFlagsFromString } from "node:v8";

const FLAG = "--heap-growing-percent";

/**
 * Objects begin as young ones. Where many were still in use at a collection, as those of requests at work are, V8 would make all later
 * ones old at once, for good: then they and the young ones that they lead to stay until a collection of the whole heap.
 */
export function allocateYoung(): void {
  setFlagsFromString("--no-allocation-site-pretenuring");
}

/**
 * In percent of what was in use after the last collection. Left alone, V8 takes up to four times as much on a machine with much memory,
 * and keeps what it has once taken. It reads the setting at every collection, so that it can be set in a process that runs.
 */
const GROWTH = 40;

/** Milliseconds between two looks. */
const INTERVAL_MS = 1_000;

/**
 * Bounds the growth while `isLarge` holds, and leaves it to V8 otherwise, since collections take processor time. A value that was given to
 * Node.js is left as it is.
 */
export function boundHeapGrowth(isLarge: () => boolean): void {
  const given = [...process.execArgv, process.env.NODE_OPTIONS ?? ""].join(" ").replaceAll("_", "-");
  if (given.includes(FLAG)) return;
  let growth = 0;
  const look = () => {
    const wanted = isLarge() ? GROWTH : 0;
    if (wanted !== growth) setFlagsFromString(`${FLAG}=${wanted}`);
    growth = wanted;
  };
  look();
  setInterval(look, INTERVAL_MS).unref();
}
