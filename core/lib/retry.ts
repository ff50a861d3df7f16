/** When to try again what has failed. */

/**
 * The pause before the next try. It doubles with every try, and half of it is random, so that callers that failed together do not
 * retry together.
 *
 * @param tries that were made before the one that has failed
 */
export const backOff = (tries: number, first: number, longest: number): number =>
  Math.round(Math.min(first * 2 ** tries, longest) * (0.5 + Math.random() / 2));

/** Milliseconds that a server asks for in `Retry-After`, in seconds or as a date; null when it names none. */
export function retryAfter(header: unknown, now = Date.now()): number | null {
  const seconds = amountOf(header);
  if (seconds !== null) return seconds * 1000;
  // HTTP dates contain the name of a month; `Date.parse` would take "-5" for a year.
  const date = typeof header === "string" && /[A-Za-z]/.test(header) ? Date.parse(header) : Number.NaN;
  return Number.isNaN(date) ? null : Math.max(0, date - now);
}

/** A number of a header that is not negative; else null. */
export function amountOf(header: unknown): number | null {
  if (typeof header !== "string" || header.trim() === "") return null;
  const number = Number(header);
  return number >= 0 ? number : null;
}
