/** Agents as models: `GET /v1/models`. */

import type { Agent } from "../agents/agent.ts";
import { quoted } from "../lib/errors.ts";
import { OpenaiError } from "./errors.ts";

type Agents = ReadonlyMap<string, Agent>;

/** @throws OpenaiError when there is no such agent */
export function agentOf(agents: Agents, model: string): Agent {
  const agent = agents.get(model);
  if (agent !== undefined) return agent;
  const message = `the model ${quoted(model)} does not exist: models are the ids of agents`;
  throw new OpenaiError("not_found", message, "model_not_found", "model");
}

/** `created` is 0, because the time at which an agent was written is unknown. */
export const modelOf = ({ id }: Agent) => ({ id, object: "model" as const, created: 0, owned_by: "penstock" });

export const modelList = (agents: Agents) => ({
  object: "list" as const,
  data: [...agents.values()].map(modelOf),
});
