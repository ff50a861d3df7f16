/** Ends of spans that are alike everywhere: a failure, a stop, the end of something that was waited for. */
import { ServiceError } from "../lib/errors.ts";
import type { Span } from "./span.ts";

/** Work that was stopped from outside: the client left, it was cancelled, another branch has won. */
const CANCELLED = "cancelled";

export const cancelSpan = (span: Span): void => span.fail(CANCELLED, CANCELLED);

/** What a fault of ours says is for the log alone. */
export function failSpan(span: Span, thrown: unknown): void {
  if (thrown instanceof ServiceError) span.fail(thrown.kind, thrown.message);
  else span.fail("internal", "internal error");
}

/** A span of its own for something that is waited for. */
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
