/** Traces tool calls: their input, their result or their failure. */

import { userIdOf } from "../identity/user.ts";
import { ServiceError } from "../lib/errors.ts";
import { CONTENT, toolAttributes, toolSpan } from "../observability/attributes.ts";
import type { Span } from "../observability/span.ts";
import { cancelSpan, failSpan } from "../observability/spans.ts";
import type { Tool, ToolOrigin } from "./tool.ts";

type Run = (tool: Tool, input: unknown, origin: ToolOrigin, span: Span | null) => unknown;

/** @returns null for a call that is not traced */
export function beginTool({ name }: Tool, { call }: ToolOrigin): Span | null {
  if (call.trace === undefined) return null;
  return call.trace.begin(toolSpan(name), 0, { type: "tool", id: name, name }, userIdOf(call.user) ?? undefined);
}

/** Returns and throws what `run` does, and ends the span. */
export function runTraced(run: Run, tool: Tool, input: unknown, origin: ToolOrigin, span: Span): unknown {
  span.set(toolAttributes(tool.name, undefined));
  span.content(CONTENT.toolArguments, input);
  let result: unknown;
  try {
    result = run(tool, input, origin, span);
  } catch (error) {
    fail(span, error, origin);
    throw error;
  }
  if (result instanceof Promise) return finishLater(result, origin, span);
  end(span, result);
  return result;
}

async function finishLater(running: Promise<unknown>, origin: ToolOrigin, span: Span): Promise<unknown> {
  try {
    const result = await running;
    end(span, result);
    return result;
  } catch (error) {
    fail(span, error, origin);
    throw error;
  }
}

function end(span: Span, result: unknown): void {
  span.content(CONTENT.toolResult, result);
  span.finish();
}

/** Ends the span with an error. Once the caller's signal has aborted, an error that is not a ServiceError is its reason. */
function fail(span: Span, error: unknown, { call }: ToolOrigin): void {
  if (!(error instanceof ServiceError) && call.signal.aborted) cancelSpan(span);
  else failSpan(span, error);
}
