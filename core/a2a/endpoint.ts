/** `POST /a2a/:id`, with the SDK and the tasks of the service: loaded with the first request. */
import type { Logger } from "pino";
import type { Agent } from "../agents/agent.ts";
import type { Context, RawReply } from "../http/route.ts";
import { principalOf } from "../identity/principal.ts";
import { Requests } from "./requests.ts";
import { answerRpc } from "./rpc.ts";
import type { TaskRows } from "./task-rows.ts";
import { Tasks } from "./tasks.ts";

export interface EndpointSource {
  readonly rows: TaskRows;
  readonly logger: Logger;
  readonly isolated: boolean;
  /** Milliseconds that a reply may wait for the end of its task. */
  readonly patience: number;
}

/** What a request asks, and of whom. */
export interface Asked {
  readonly agent: Agent;
  /** That of the agent, as JSON: hardly a method wants it. */
  readonly card: () => string;
  readonly body: unknown;
  /** `performance.now()` when it came: the first one waits for the protocol to be loaded. */
  readonly began: number;
}

export class A2aEndpoint {
  readonly #source: EndpointSource;
  readonly tasks: Tasks;

  constructor(source: EndpointSource) {
    this.#source = source;
    this.tasks = new Tasks(source.rows, source.logger);
  }

  answer({ agent, card, body, began }: Asked, call: Context<unknown>): Promise<RawReply> {
    const { isolated, patience } = this.#source;
    const principal = principalOf(call, isolated);
    const requests = new Requests({ agent, card, tasks: this.tasks, principal, call, until: began + patience });
    return answerRpc(body, call.headers["a2a-version"], requests, call);
  }
}
