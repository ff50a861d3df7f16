/** When something began, as its id says, and where it is looked for. */

/** Milliseconds after which a span that is not yet written is looked for by its second, and not by the time of its segment. */
export const NEARBY_MS = 2_000;

const TRACE_ID = /^[0-9a-f]{32}$/;
const SPAN_ID = /^[0-9a-f]{16}$/;
/** Milliseconds in a span's id wrap after 35 years. */
const WRAP = 2 ** 40;
const DAY = 86_400_000;

export const isTraceId = (text: string): boolean => TRACE_ID.test(text);
export const isSpanId = (text: string): boolean => SPAN_ID.test(text);

/** Milliseconds since 1970; of the id of a foreign trace anything. */
export const timeOfTrace = (id: string): number => Number.parseInt(id.slice(0, 12), 16);

export function timeOfSpan(id: string, now: number): number {
  const time = Number.parseInt(id.slice(0, 10), 16) + Math.floor(now / WRAP) * WRAP;
  return time > now + DAY ? time - WRAP : time;
}

export const secondOf = (time: number): number => Math.floor(time / 1_000);
