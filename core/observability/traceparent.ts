/** The headers `traceparent` and `tracestate` of W3C Trace Context, level 1 and later versions. */
import type { Span, SpanContext } from "./span.ts";

export interface Traceparent extends SpanContext {
  /** Whether the caller records the trace. */
  readonly sampled: boolean;
}

/** Four fields; a later version may have more behind another dash. */
const FORM = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const NO_TRACE = "0".repeat(32);
const NO_SPAN = "0".repeat(16);
/** Reserved by the specification: not a version. */
const NO_VERSION = "ff";
/** The version with exactly four fields. */
const FIRST_VERSION = "00";
const SAMPLED_FLAG = 1;
/** A longer header is refused, so that parsing stays cheap. */
const MAX_HEADER_LENGTH = 512;

/** @returns null for an invalid header: then the request starts a new trace */
export function parseTraceparent(header: string): Traceparent | null {
  if (header.length > MAX_HEADER_LENGTH) return null;
  const match = FORM.exec(header);
  if (match === null) return null;
  const [, version, traceId, spanId, flags, more] = match as unknown as string[];
  if (version === NO_VERSION || traceId === NO_TRACE || spanId === NO_SPAN) return null;
  if (version === FIRST_VERSION && more !== undefined) return null;
  return { traceId: traceId!, spanId: spanId!, sampled: (Number.parseInt(flags!, 16) & SAMPLED_FLAG) !== 0 };
}

/** Valid values, which are passed on unchanged. A longer one may be dropped. */
const TRACESTATE = /^[\x20-\x7e]{1,512}$/;

export const acceptTracestate = (header: string): string => (TRACESTATE.test(header) ? header : "");

/** The headers with which a request to another service continues the trace of a span. A span exists only if it is recorded. */
export function traceHeaders({ traceId, spanId, tracestate }: Span): Record<string, string> {
  const traceparent = `00-${traceId}-${spanId}-01`;
  return tracestate === "" ? { traceparent } : { traceparent, tracestate };
}
