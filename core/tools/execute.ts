/** The one function that runs tools, for agents, workflows and the API: its checks cannot be bypassed. */

import { userIdOf } from "../identity/user.ts";
import { caught, invalid, messageOf, quoted, ServiceError, unavailable } from "../lib/errors.ts";
import { isThenable } from "../lib/thenable.ts";
import { CONTENT, toolAttributes, toolSpan } from "../observability/attributes.ts";
import type { Span } from "../observability/span.ts";
import { cancelSpan, failSpan } from "../observability/spans.ts";
import { mayHaveAsked } from "./approval.ts";
import { boundedResult } from "./content.ts";
import { type Tool, type ToolOrigin, ToolUnavailable } from "./tool.ts";
import { ToolInvocation } from "./tool-call.ts";

/**
 * Checks approval and input, runs the tool, and stops it at its time limit or when the client's signal aborts.
 *
 * Returns the tool's result: a value when the tool is synchronous, else a promise. So `await` the call inside a `try`: a synchronous
 * tool throws at once. Undefined becomes null.
 *
 * @throws ApprovalNeeded for a call that a person has to approve first; ServiceError `conflict` for one that was refused, and for a tool
 * that a client runs, `invalid_input` with every problem of the input, `tool_failed` with the tool's own message or its time limit,
 * `unavailable` when its server cannot be reached; the reason of `origin.call.signal` once that aborts (with `origin.waitsForLate` only
 * if the tool fails after that)
 */
export function executeTool(tool: Tool, input: unknown, origin: ToolOrigin): unknown {
  const span = origin.span === undefined ? beginTool(tool, origin) : null;
  return span === null ? run(tool, input, origin, origin.span ?? null) : runTraced(run, tool, input, origin, span);
}

function run(tool: Tool, input: unknown, origin: ToolOrigin, span: Span | null): unknown {
  const { meter, approval } = tool;
  const asked = mayHaveAsked(tool, origin.approval);
  const problem = asked ? null : tool.validate(input);
  if (problem !== null) {
    meter?.calls.count("invalid input");
    throw invalid(problem);
  }

  if (tool.client) {
    meter?.calls.count("failed");
    throw runsInClient(tool);
  }

  if (asked || (approval !== false && approval.asks(input, origin))) return runAdmitted(tool, input, origin, span);
  return perform(tool, input, origin, span);
}

/** Runs the call with the admitted input. Its approval is used up before the tool starts. */
async function runAdmitted(tool: Tool, input: unknown, origin: ToolOrigin, span: Span | null): Promise<unknown> {
  let admitted: unknown;
  try {
    if (tool.inbox === undefined) throw unavailable("nobody can be asked for approval here");
    admitted = await tool.inbox.admit({ tool, input, origin });
  } catch (error) {
    tool.meter?.calls.count("not approved");
    throw error;
  }
  return perform(tool, admitted, origin, span);
}

function perform(tool: Tool, input: unknown, origin: ToolOrigin, span: Span | null): unknown {
  const { meter } = tool;
  const call = new ToolInvocation(tool, origin, span);
  let result: unknown;
  let later: boolean;
  try {
    result = tool.run(input, call);
    later = isThenable(result);
  } catch (thrown) {
    call.end();
    throw failure(tool, call, thrown);
  }
  if (later) {
    return call.wait(result as PromiseLike<unknown>).then(
      (value) => {
        meter?.calls.count("ok");
        return boundedResult(tool.name, value);
      },
      (thrown) => {
        throw failure(tool, call, thrown);
      },
    );
  }
  call.end();
  meter?.calls.count("ok");
  return boundedResult(tool.name, result);
}

/**
 * A tool's result as JSON text.
 *
 * @throws ServiceError `tool_failed` for a value that JSON cannot represent: a bigint, a circular reference, a function
 */
export function toolResultText(name: string, result: unknown): string {
  let cause: unknown;
  try {
    const text = JSON.stringify(result) as string | undefined;
    if (text !== undefined) return text;
  } catch (thrown) {
    cause = thrown;
  }
  throw new ServiceError("tool_failed", `tool ${quoted(name)} returned something that is not JSON`, { cause });
}

/** The error to throw. When the call was stopped, that is the reason for stopping it, whatever the tool itself threw. */
function failure(tool: Tool, call: ToolInvocation, given: unknown): unknown {
  const { stopped } = call;
  const thrown = caught(given);
  tool.meter?.calls.count(stopped === null ? "failed" : stopped.timedOut ? "timed out" : "aborted");
  if (stopped !== null) return stopped.reason;
  if (thrown instanceof ToolUnavailable) return unavailable(thrown.message);
  const said = thrown instanceof Error || typeof thrown === "string" ? messageOf(thrown) : "";
  return new ServiceError("tool_failed", said || `tool ${quoted(tool.name)} failed`, { cause: thrown });
}

function runsInClient({ name }: Tool): ServiceError {
  return new ServiceError("conflict", `tool ${quoted(name)} runs in the client of an agent: it cannot run here`);
}

// Traces tool calls: their input, their result or their failure.

type Run = (tool: Tool, input: unknown, origin: ToolOrigin, span: Span | null) => unknown;

/** @returns null for a call that is not traced */
function beginTool({ name }: Tool, { call }: ToolOrigin): Span | null {
  if (call.trace === undefined) return null;
  return call.trace.begin(toolSpan(name), 0, { type: "tool", id: name, name }, userIdOf(call.user) ?? undefined);
}

/** Returns and throws what `run` does, and ends the span. */
function runTraced(run: Run, tool: Tool, input: unknown, origin: ToolOrigin, span: Span): unknown {
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
