/** The usual ways to end a span: with a failure, with a cancellation, with a promise. */
import { ServiceError } from "../lib/errors.ts";
import type { Span } from "./span.ts";

/** The type for work that was stopped from outside: the client left, it was cancelled, or another branch won. */
const CANCELLED = "cancelled";

export const cancelSpan = (span: Span): void => span.fail(CANCELLED, CANCELLED);

/** Ends the span with an error. The message of an internal error is only for the log. */
export function failSpan(span: Span, thrown: unknown): void {
  if (thrown instanceof ServiceError) span.fail(thrown.kind, thrown.message);
  else span.fail("internal", "internal error");
}

/** Wraps a promise in a span. */
export function spanned<T>(span: Span | null, work: Promise<T>): Promise<T> {
  return span === null ? work : ending(span, work);
}

async function ending<T>(span: Span, work: Promise<T>): Promise<T> {
  try {
    const result = await work;
    span.finish();
    return result;
  } catch (error) {
    failSpan(span, error);
    throw error;
  }
}
