/** How far V8 lets the heap grow before it looks for garbage. */
import { setFlagsFromString } from "node:v8";

const FLAG = "--heap-growing-percent";

/**
 * In percent of what was in use after the last collection. Left alone, V8 takes up to four times as much on a machine with much memory,
 * and keeps what it has once taken. It reads the setting at every collection, so that it can be set in a process that runs.
 */
const GROWTH = 40;

/** For a process that stays. A value that was given to Node.js is left as it is. */
export function boundHeapGrowth(): void {
  const given = [...process.execArgv, process.env.NODE_OPTIONS ?? ""].join(" ").replaceAll("_", "-");
  if (!given.includes(FLAG)) setFlagsFromString(`${FLAG}=${GROWTH}`);
}
