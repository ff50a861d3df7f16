/** Agents as the API shows them. All but the status is known at boot, so the list is text that is glued, not built. */
import type { AgentDetail, AgentSummary, SubAgent } from "../../generated/types.ts";
import type { Activity, Changes } from "./activity.ts";
import type { ToolSet } from "./tool-set.ts";

/** What is known of an agent at boot. */
export interface AgentFacts {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  /** `provider/model` of the first entry, or `dynamic` for an expression. */
  readonly model: string;
  readonly tools: ToolSet;
  readonly subAgents: readonly string[];
  readonly activity: Activity;
}

export interface Description {
  summary(): AgentSummary;
  detail(): AgentDetail;
}

export function describe(facts: AgentFacts, all: ReadonlyMap<string, AgentFacts>): Description {
  const { id, name, description, model, activity } = facts;
  const tools = [...facts.tools.byName.values()].map(({ definition }) => ({
    name: definition.name,
    description: definition.description ?? "",
    parameters: definition.inputSchema as object,
  }));
  const toolNames = tools.map((tool) => tool.name);
  const common = () => ({ id, name, description, status: activity.status, model });
  const subAgents = (): SubAgent[] => facts.subAgents.flatMap((subAgent) => subAgentOf(all.get(subAgent)));
  // Memory is not part of this version, and nothing is traced: null and false are the truth.
  const rest = { memory: null, isTelemetryEnabled: false };
  return {
    summary: () => ({ ...common(), tools, subAgents: subAgents(), ...rest }),
    detail: () => ({ ...common(), tools: toolNames, subAgents: subAgents(), ...rest }),
  };
}

function subAgentOf(facts: AgentFacts | undefined): SubAgent[] {
  if (facts === undefined) return [];
  const { id, name, description, activity, model } = facts;
  return [{ id, name, description, status: activity.status, model }];
}

/** `data` of `GET /agents` as JSON, made again only after a status has changed. */
export function createListing(descriptions: readonly Description[], changes: Changes): () => string {
  let made = -1;
  let text = "";
  return () => {
    if (made !== changes.count) {
      made = changes.count;
      text = JSON.stringify(descriptions.map((description) => description.summary()));
    }
    return text;
  };
}
