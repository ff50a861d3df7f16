/** What a load must leave behind: no socket, and no line of a fault in the log. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Measured } from "../support/measured.ts";

/** Milliseconds for what is open to be let go at the end. */
const SETTLE = 30_000;

export type Sockets = readonly [before: readonly string[], after: readonly string[]];

/** Waits until there are no more sockets than there were before, or too long. */
export async function settledSockets(served: Measured, before: readonly string[]): Promise<Sockets> {
  let after = served.sockets();
  for (const until = Date.now() + SETTLE; after.length > before.length && Date.now() < until; after = served.sockets())
    await sleep(200);
  return [before, after];
}

/** What is wrong, in words. */
export function leftBehind(served: Measured, [before, after]: Sockets): string[] {
  const problems: string[] = [];
  if (after.length > before.length)
    problems.push(`sockets before the load: ${before.join(", ")}; and after it: ${after.join(", ")}`);
  const faults = served
    .stdout()
    .split("\n")
    .filter((line) => /^\{"level":"(error|fatal)"/.test(line));
  if (faults.length > 0) problems.push(`the log tells of faults: ${faults.slice(0, 3).join("\n")}`);
  return problems;
}
