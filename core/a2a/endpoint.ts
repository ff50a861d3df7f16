/** `POST /a2a/:id`, with the SDK and the tasks of the service: loaded with the first request. */
import type { Logger } from "pino";
import type { Agent } from "../agents/agent.ts";
import type { Context, RawReply } from "../http/route.ts";
import { principalOf } from "../identity/principal.ts";
import { PushConfigs } from "./push-configs.ts";
import type { PushSender } from "./push-sender.ts";
import { Questions, type TaskApprovals } from "./questions.ts";
import { Requests } from "./requests.ts";
import { answerRpc } from "./rpc.ts";
import type { TaskRows } from "./task-rows.ts";
import { Tasks } from "./tasks.ts";

interface EndpointSource {
  readonly rows: TaskRows;
  readonly logger: Logger;
  readonly isolated: boolean;
  readonly approvals: TaskApprovals;
  readonly pushes: PushSender;
  /** The agents of the current generation. */
  agent(id: string): Agent | undefined;
  /** How many tasks of one user may be open. */
  readonly openTasks: number;
  /** Called for each task above that limit. */
  readonly refused: () => void;
  /** Milliseconds that a reply may wait for the end of its task. */
  readonly replyTimeout: number;
}

/** A request to an agent. */
interface AgentRequest {
  readonly agent: Agent;
  /** The card of the agent, as JSON. A function, because few methods need it. */
  readonly card: () => string;
  readonly body: unknown;
  /** Arrival of the request on the clock of `performance.now()`: the first one also waits until the SDK is loaded. */
  readonly began: number;
}

export class A2aEndpoint {
  readonly #source: EndpointSource;
  readonly tasks: Tasks;
  readonly questions: Questions;

  constructor(source: EndpointSource) {
    this.#source = source;
    const { rows, logger, refused, approvals } = source;
    this.tasks = new Tasks(rows, { logger, openTasks: () => source.openTasks, refused, approvals });
    this.questions = new Questions(this.tasks, source);
  }

  answer({ agent, card, body, began }: AgentRequest, call: Context<unknown>): Promise<RawReply> {
    const { isolated, replyTimeout, pushes } = this.#source;
    const principal = principalOf(call, isolated);
    const { tasks, questions } = this;
    const until = began + replyTimeout;
    const configs = new PushConfigs({ agent: agent.id, card, tasks, pushes, principal });
    const requests = new Requests({ agent, card, tasks, questions, configs, principal, call, until });
    return answerRpc(body, call.headers["a2a-version"], requests, pushes.isEnabled, call);
  }
}
