/** Derives times from the ids of traces and spans, and decides in which segments to look for them. */

/** How long after its start a span is looked for in sealed segments; in later ones it is found by the span's second. */
export const NEARBY_MS = 2_000;

const TRACE_ID = /^[0-9a-f]{32}$/;
const SPAN_ID = /^[0-9a-f]{16}$/;
/** The milliseconds in a span's id wrap around after 35 years. */
const WRAP_MS = 2 ** 40;
const DAY_MS = 86_400_000;

export const isTraceId = (text: string): boolean => TRACE_ID.test(text);
export const isSpanId = (text: string): boolean => SPAN_ID.test(text);

/** Milliseconds since 1970; meaningless for a trace whose id came from a caller. */
export const timeOfTrace = (id: string): number => Number.parseInt(id.slice(0, 12), 16);

export function timeOfSpan(id: string, now: number): number {
  const time = Number.parseInt(id.slice(0, 10), 16) + Math.floor(now / WRAP_MS) * WRAP_MS;
  return time > now + DAY_MS ? time - WRAP_MS : time;
}

/** The whole milliseconds of a time as it is stored, and shown to clients: rounded to microseconds. */
export const wholeMilliseconds = (time: number): number => Math.floor(Math.round(time * 1_000) / 1_000);
export const wholeSeconds = (time: number): number => Math.floor(time / 1_000);
