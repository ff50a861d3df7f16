/** Whether processes work with a shared store. */
import { setTimeout as sleep } from "node:timers/promises";
import { signsOfLife } from "./all-keys.ts";
import type { Store } from "./store.ts";

/** Longer than a process is silent. */
const SILENCE_MS = 6_000;

/**
 * Waits when there are signs of life, since only what changes tells a process that lives from one that was killed.
 *
 * @param silence milliseconds
 * @throws Error with a message for the user
 */
export async function requireIdle(store: Store, silence = SILENCE_MS): Promise<void> {
  const before = await signsOfLife(store);
  if (before.length === 0) return;
  await sleep(silence);
  const known = new Map(before.map(({ key, revision }) => [key, revision]));
  const living = (await signsOfLife(store)).filter(({ key, revision }) => known.get(key) !== revision);
  if (living.length === 0) return;
  const processes = living.length === 1 ? "a process uses" : `${living.length} processes use`;
  throw new Error(`${processes} the store: stop the service first`);
}
