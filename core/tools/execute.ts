/** The one function that runs tools, for agents, workflows and the API: its checks cannot be bypassed. */

import type { Logger } from "pino";
import { type User, userIdOf } from "../identity/principal.ts";
import { formatDuration } from "../lib/duration.ts";
import { caught, invalid, messageOf, quoted, ServiceError, unavailable } from "../lib/errors.ts";
import { isThenable } from "../lib/thenable.ts";
import type { OnToolProgress, ToolProgress } from "../lib/tool-progress.ts";
import { CONTENT, cancelSpan, failSpan, type Span, toolAttributes, toolSpan } from "../observability/span.ts";
import { boundedResult } from "./content.ts";
import { type ConfiguredCall, mayHaveAsked, type Tool, type ToolOrigin, ToolUnavailable } from "./tool.ts";

// One call of one tool. A promise, timer, signal or listener is created only when the call needs it.

// Limits how often a tool reports progress: a tool, or a foreign server, may report as often as it likes.

/** Shortest time between two reports of one call: of those in between the last one is told, before the next or at the end. */
const INTERVAL_MS = 1_000;
const MAX_MESSAGE_CHARACTERS = 1_000;

/** Passes on increasing reports, at most one per interval; invalid ones are ignored. Without a report: the one that is held back. */
function boundedProgress(tell: OnToolProgress): (report?: ToolProgress) => void {
  let last = Number.NEGATIVE_INFINITY;
  let told = Number.NEGATIVE_INFINITY;
  let held: ToolProgress | undefined;
  return (report) => {
    const { progress, total, message } = (report ?? {}) as Partial<ToolProgress>;
    if (isNumber(progress) && progress > last) {
      last = progress;
      held = {
        progress,
        ...(isNumber(total) && { total }),
        ...(typeof message === "string" && { message: message.slice(0, MAX_MESSAGE_CHARACTERS) }),
      };
    }
    if (held === undefined || (report !== undefined && performance.now() - told < INTERVAL_MS)) return;
    told = performance.now();
    tell(held);
    held = undefined;
  };
}

const isNumber = (value: unknown): value is number => Number.isFinite(value);

/** Why a call was stopped from outside, and whether by its own time limit. */
interface Stopped {
  readonly reason: unknown;
  readonly timedOut: boolean;
}

/** The longest delay that a timer of Node supports; a longer one would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * The `call` that a tool sees. Plain values are fields, so that `{ ...call }` has them; `signal` and `logger` are created on first use.
 * The call ends once: with its result, at its time limit, or when the client leaves, whichever is first. If the caller waits for late
 * results, an abort of the caller's signal does not end it: the tool's signal aborts, and its end is awaited.
 */
class ToolInvocation implements ConfiguredCall {
  readonly user: User | null;
  readonly context: Record<string, unknown>;
  readonly requestId: string;
  readonly config: unknown;
  readonly conversationId: string | undefined;
  readonly executionId: string | undefined;
  readonly idempotencyKey: string | undefined;
  readonly #origin: ToolOrigin;
  readonly #tool: Tool;
  readonly #span: Span | null;
  #logger: Logger | null = null;
  #controller: AbortController | null = null;
  #timer: NodeJS.Timeout | null = null;
  /** Listens to the client's signal while the call runs. */
  #abortListener: (() => void) | null = null;
  #progress: ReturnType<typeof boundedProgress> | null = null;
  #reject: ((reason: unknown) => void) | null = null;
  #ended = false;
  #stopped: Stopped | null = null;

  constructor(tool: Tool, origin: ToolOrigin, span: Span | null) {
    this.#tool = tool;
    this.#origin = origin;
    this.#span = span;
    this.user = origin.call.user;
    this.requestId = origin.call.requestId;
    this.context = origin.context;
    this.config = tool.config;
    this.conversationId = origin.conversationId;
    this.executionId = origin.executionId;
    this.idempotencyKey = origin.idempotencyKey;
  }

  get span(): Span | null {
    return this.#span;
  }

  get logger(): Logger {
    this.#logger ??= this.#origin.call.logger.child({ tool: this.#tool.name });
    return this.#logger;
  }

  /** Aborts when the client leaves and at the time limit, for as long as the call runs. */
  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (!this.#ended) this.#watch();
      if (this.#stopped !== null) this.#controller.abort(this.#stopped.reason);
    }
    return this.#controller.signal;
  }

  /** Undefined when nobody follows the progress of the call. */
  get progress(): OnToolProgress | undefined {
    const tell = this.#origin.progress;
    if (tell === undefined) return undefined;
    this.#progress ??= boundedProgress((report) => {
      if (!this.#ended) tell(report);
    });
    return this.#progress;
  }

  /** Why the call was stopped from outside, or null. */
  get stopped(): Stopped | null {
    return this.#stopped;
  }

  /** Ends the call: tells its last progress, removes its timer and its listener. */
  end(): void {
    if (this.#stopped === null) this.#progress?.();
    this.#ended = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#abortListener !== null) this.#origin.call.signal.removeEventListener("abort", this.#abortListener);
    this.#abortListener = null;
  }

  /**
   * Waits for an asynchronous tool. Rejects at the time limit, and when the client leaves (unless that client waits for late results),
   * whether or not the tool honours its signal; a later result is discarded.
   */
  wait(result: PromiseLike<unknown>): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#reject = reject;
      this.#timer = setTimeout(() => this.#stop(this.#timedOut(), true), Math.min(this.#tool.timeout, MAX_TIMER_MS));
      this.#watch();
      // A thenable may call its callbacks more than once; a promise made of it settles once.
      Promise.resolve(result).then(
        (value) => {
          this.end();
          resolve(value);
        },
        (thrown) => {
          this.end();
          reject(thrown);
        },
      );
    });
  }

  #watch(): void {
    if (this.#abortListener !== null || this.#ended) return;
    const { signal } = this.#origin.call;
    if (signal.aborted) {
      this.#stop(signal.reason);
      return;
    }
    this.#abortListener = () => this.#stop(signal.reason);
    signal.addEventListener("abort", this.#abortListener);
  }

  #stop(reason: unknown, timedOut = false): void {
    if (this.#ended) return;
    this.#stopped ??= { reason, timedOut };
    if (timedOut || this.#origin.waitsForLate !== true) {
      this.end();
      // Before the tool's signal aborts, so that an error of the tool about the abort does not become the outcome.
      this.#reject?.(this.#stopped.reason);
    }
    this.#controller?.abort(reason);
  }

  #timedOut(): ServiceError {
    const { name, timeout } = this.#tool;
    return new ServiceError("tool_failed", `tool ${JSON.stringify(name)} timed out after ${formatDuration(timeout)}`);
  }
}

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
    throw new ServiceError("conflict", `tool ${quoted(tool.name)} runs in the client of an agent: it cannot run here`);
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
  // The store may have taken long, or this process have stood still meanwhile.
  await origin.call.confirm?.();
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
