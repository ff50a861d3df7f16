/** `POST /a2a/:id`, with the SDK: loaded with the first request. */
import type { Agent } from "../agents/agent.ts";
import type { Context, RawReply } from "../http/route.ts";
import { principalOf } from "../identity/principal.ts";
import { PushConfigs } from "./push-configs.ts";
import type { PushSender } from "./push-sender.ts";
import { Requests } from "./requests.ts";
import { answerRpc } from "./rpc.ts";
import type { Tasks } from "./tasks.ts";

/** A request to an agent. */
export interface AgentRequest {
  readonly agent: Agent;
  /** The card of the agent, as JSON. A function, because few methods need it. */
  readonly card: () => string;
  readonly body: unknown;
  /** Arrival of the request on the clock of `performance.now()`: the first one also waits until the SDK is loaded. */
  readonly began: number;
}

interface Served {
  readonly tasks: Tasks;
  readonly pushes: PushSender;
  readonly isolated: boolean;
  /** Milliseconds that a reply may wait for the end of its task. */
  readonly replyTimeout: number;
}

export function answerRequest(
  { agent, card, body, began }: AgentRequest,
  call: Context<unknown>,
  { tasks, pushes, isolated, replyTimeout }: Served,
): Promise<RawReply> {
  const principal = principalOf(call, isolated);
  const configs = new PushConfigs({ agent: agent.id, card, tasks, pushes, principal });
  const requests = new Requests({ agent, card, tasks, configs, principal, call, until: began + replyTimeout });
  return answerRpc(body, call.headers["a2a-version"], requests, pushes.isEnabled, call);
}
