/** One call of one tool. A promise, timer, signal or listener is created only when the call needs it. */
import type { Logger } from "pino";
import type { User } from "../identity/user.ts";
import { formatDuration } from "../lib/duration.ts";
import { ServiceError } from "../lib/errors.ts";
import type { OnToolProgress, ToolProgress } from "../lib/tool-progress.ts";
import type { Span } from "../observability/span.ts";
import type { ConfiguredCall, Tool, ToolOrigin } from "./tool.ts";

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
export class ToolInvocation implements ConfiguredCall {
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
