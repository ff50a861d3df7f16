/** Agents as the API shows them. Everything is known at boot except the status and the tools of MCP servers. */
import type { AgentDetail, AgentSummary, AgentTool, SubAgent } from "../../generated/types.ts";
import type { MemoryManifest } from "../manifest/manifest.ts";
import type { Activity } from "./run/activity.ts";
import type { ToolSet } from "./run/tool-set.ts";

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
  /** Whether its runs may be traced. */
  readonly traced: boolean;
  /** Null for an agent without memory. */
  readonly memory: { readonly config: Record<string, unknown> } | null;
}

export interface Description {
  summary(): AgentSummary;
  detail(): AgentDetail;
}

export function describe(facts: AgentFacts, all: ReadonlyMap<string, AgentFacts>): Description {
  const { id, name, description, model, activity } = facts;
  const toolNames = [...facts.tools.byName.keys()];
  const changes = [...facts.tools.byName.values()].some((tool) => tool.changes);
  const fixedTools = changes ? null : describeTools(facts.tools);
  const common = () => ({ id, name, description, status: activity.status, model });
  const subAgents = (): SubAgent[] => facts.subAgents.flatMap((subAgent) => describeSubAgent(all.get(subAgent)));
  const rest = { memory: facts.memory, isTelemetryEnabled: facts.traced };
  return {
    summary: () => ({ ...common(), tools: fixedTools ?? describeTools(facts.tools), subAgents: subAgents(), ...rest }),
    detail: () => ({ ...common(), tools: toolNames, subAgents: subAgents(), ...rest }),
  };
}

function describeTools(tools: ToolSet): AgentTool[] {
  return [...tools.byName.values()].map(({ definition, clientInput }) => ({
    name: definition.name,
    description: definition.description ?? "",
    parameters: definition.inputSchema as AgentTool["parameters"],
    ...(clientInput !== undefined && { client: true as const }),
  }));
}

function describeSubAgent(facts: AgentFacts | undefined): SubAgent[] {
  if (facts === undefined) return [];
  const { id, name, description, activity, model } = facts;
  return [{ id, name, description, status: activity.status, model }];
}

/** A memory's settings. Of a plugin only the name is shown: its other settings may contain a secret. */
export function memoryConfig(name: string, settings: MemoryManifest): Record<string, unknown> {
  const { contextLimit, contextTokens, summary, workingMemory, semantic } = settings;
  const config: Record<string, unknown> = { name, contextLimit, ...(contextTokens !== undefined && { contextTokens }) };
  if (summary !== undefined) config.summary = { model: summary.model, after: summary.after };
  if (workingMemory !== undefined) {
    const { scope, format, template, schema } = workingMemory;
    config.workingMemory = {
      scope,
      format,
      ...(template !== undefined && { template }),
      ...(schema !== undefined && { schema }),
    };
  }
  if (semantic !== undefined) {
    const { embedding, vectors, limit, threshold, scope } = semantic;
    config.semantic = { embedding: pluginName(embedding), vectors: pluginName(vectors), limit, threshold, scope };
  }
  return config;
}

const pluginName = (choice: string | { use: string }) => (typeof choice === "string" ? choice : choice.use);
