/** The call context of a run, as its tools and sub-agents see it: that of the request, with a logger that fields the run. */
import { setMaxListeners } from "node:events";
import type { Logger } from "pino";
import type { Context } from "../../http/route.ts";
import type { Caller, User } from "../../identity/principal.ts";
import { AbortSource, type Aborts, abortsOf } from "../../lib/aborts.ts";
import { boundLogger } from "../../observability/bound-logger.ts";
import type { Span } from "../../observability/span.ts";

/** The part of a request's context that a run needs. `signal` is created when it is first read. */
export type RunCall = Pick<Context<unknown>, "user" | "caller" | "requestId" | "signal" | "logger" | "trace"> &
  Partial<Pick<Context<unknown>, "client" | "aborts" | "replyWith" | "keyed" | "charge">> & {
    /**
     * Must be called before each side effect of a run that another process may recover. Undefined: the side effect may happen now.
     * Otherwise it may once the promise has resolved. Throws, or rejects, when the run was stopped.
     */
    confirm?(): Promise<void> | undefined;
  };

/** What log lines of the run say of it. */
interface LogFields {
  readonly conversationId?: string | undefined;
  readonly userId?: string | undefined;
}

export class RunCaller implements RunCall {
  readonly user: User | null;
  readonly caller: Caller;
  readonly requestId: string;
  readonly #call: RunCall;
  readonly agentId: string;
  readonly #fields: LogFields;
  /** The span of the run, once it has begun; log lines name it. */
  span: Span | null = null;
  #logger: Logger | null = null;
  /** Of a run that can be stopped without its request, and of those that it delegates to. */
  #own: AbortSource | null = null;
  /** Why it was stopped; null unless it was. */
  interruption: Error | null = null;

  /** @param call of the request or the workflow step; for a sub-agent that of its parent agent, whose logger it does not take over */
  constructor(call: RunCall, agentId: string, fields: LogFields) {
    this.#call = call instanceof RunCaller ? call.#call : call;
    if (call instanceof RunCaller) this.#own = call.#own;
    this.user = call.user;
    this.caller = call.caller;
    this.requestId = call.requestId;
    this.agentId = agentId;
    this.#fields = fields;
  }

  get trace(): RunCall["trace"] {
    return this.#call.trace;
  }

  get signal(): AbortSignal {
    const own = this.#own;
    if (own === null) return this.#call.signal;
    // Every tool that runs adds a listener; without this Node would warn of a leak.
    if (!own.hasSignal) setMaxListeners(0, own.signal);
    return own.signal;
  }

  get aborts(): Aborts | undefined {
    return this.#own ?? this.#call.aborts;
  }

  /** From now on `interrupt` stops the run, as does the end of its request. */
  makeInterruptible(): void {
    const own = new AbortSource();
    const above = this.aborts ?? abortsOf(this.signal)!;
    above.add({ aborted: (reason) => own.abort(reason) });
    this.#own = own;
  }

  /** Why an interruptible run, or one above it, was stopped; undefined while it goes on. */
  get stopped(): unknown {
    return this.#own?.reason;
  }

  /** Stops the run, if it is interruptible. */
  interrupt(reason: Error): void {
    if (this.#own === null || this.interruption !== null) return;
    this.interruption = reason;
    this.#own.abort(reason);
  }

  confirm(): Promise<void> | undefined {
    return this.#call.confirm?.();
  }

  /** Names the approval that a call needs in the reply, where its headers are not out yet: the client has no other way to see it. */
  nameApproval(id: string): void {
    const { replyWith } = this.#call;
    if (replyWith?.facts.approvalId === undefined)
      this.#call.replyWith = { ...replyWith, facts: { ...replyWith?.facts, approvalId: id } };
  }

  get logger(): Logger {
    if (this.#logger === null) {
      const { conversationId, userId } = this.#fields;
      const { traceId, spanId } = this.span ?? {};
      const fields = { agentId: this.agentId, conversationId, userId, traceId, spanId };
      this.#logger = boundLogger(this.#call.logger, fields);
    }
    return this.#logger;
  }
}
