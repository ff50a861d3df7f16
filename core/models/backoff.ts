/** The pause between two tries of one model. */

const FIRST_MS = 500;
const MAX_MS = 8000;

/** Doubles with every try. Half of it is random, so that clients that failed together do not retry together. */
export function backoff(retries: number, first = FIRST_MS): number {
  const longest = Math.min(first * 2 ** retries, MAX_MS);
  return Math.round(longest * (0.5 + Math.random() / 2));
}
