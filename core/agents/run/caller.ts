/** The call context of a run, as its tools and sub-agents see it: that of the request, with a logger that fields the run. */
import type { Logger } from "pino";
import type { Caller } from "../../identity/caller.ts";
import type { User } from "../../identity/user.ts";
import { boundLogger } from "../../observability/bound-logger.ts";
import type { Span } from "../../observability/span.ts";
import type { RunCall } from "../agent.ts";

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
  readonly #agentId: string;
  readonly #fields: LogFields;
  /** The span of the run, once it has begun; log lines name it. */
  span: Span | null = null;
  #logger: Logger | null = null;

  /** @param call of the request or the workflow step; for a sub-agent that of its parent agent, whose logger it does not take over */
  constructor(call: RunCall, agentId: string, fields: LogFields) {
    this.#call = call instanceof RunCaller ? call.#call : call;
    this.user = call.user;
    this.caller = call.caller;
    this.requestId = call.requestId;
    this.#agentId = agentId;
    this.#fields = fields;
  }

  get trace(): RunCall["trace"] {
    return this.#call.trace;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }

  get aborts(): RunCall["aborts"] {
    return this.#call.aborts;
  }

  confirm(): Promise<void> | undefined {
    return this.#call.confirm?.();
  }

  get logger(): Logger {
    if (this.#logger === null) {
      const { conversationId, userId } = this.#fields;
      const { traceId, spanId } = this.span ?? {};
      const fields = { agentId: this.#agentId, conversationId, userId, traceId, spanId };
      this.#logger = boundLogger(this.#call.logger, fields);
    }
    return this.#logger;
  }
}
