/** On whose behalf an agent runs, as all that the run calls sees it: lines of the log say which run they belong to. */
import type { Logger } from "pino";
import type { Caller } from "../../identity/caller.ts";
import type { User } from "../../identity/user.ts";
import { boundLogger } from "../../observability/bound-logger.ts";
import type { Span } from "../../observability/span.ts";
import type { RunCall } from "../agent.ts";

/** Names of the run that its lines carry. */
interface RunNames {
  readonly conversationId?: string | undefined;
  readonly userId?: string | undefined;
}

export class RunCaller implements RunCall {
  readonly user: User | null;
  readonly caller: Caller;
  readonly requestId: string;
  readonly #call: RunCall;
  readonly #agentId: string;
  readonly #names: RunNames;
  /** Of the run, once it has begun: its lines name it too. */
  span: Span | null = null;
  #logger: Logger | null = null;

  /** @param call of the request or the step; that of the agent above, of which the run is no part, for a sub-agent */
  constructor(call: RunCall, agentId: string, names: RunNames) {
    this.#call = call instanceof RunCaller ? call.#call : call;
    this.user = call.user;
    this.caller = call.caller;
    this.requestId = call.requestId;
    this.#agentId = agentId;
    this.#names = names;
  }

  get trace(): RunCall["trace"] {
    return this.#call.trace;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }

  get logger(): Logger {
    if (this.#logger === null) {
      const { conversationId, userId } = this.#names;
      const { traceId, spanId } = this.span ?? {};
      const names = { agentId: this.#agentId, conversationId, userId, traceId, spanId };
      this.#logger = boundLogger(this.#call.logger, names);
    }
    return this.#logger;
  }
}
