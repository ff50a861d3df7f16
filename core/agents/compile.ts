/** Boot: the agents of the manifest, linked with their tools, models and each other. */
import { isTemplate } from "../manifest/expression.ts";
import type { AgentManifest, Manifest } from "../manifest/manifest.ts";
import type { Tool } from "../tools/tool.ts";
import { Activity } from "./activity.ts";
import type { Agent } from "./agent.ts";
import { createClientSchemas } from "./client-schema.ts";
import type { AgentCore } from "./core.ts";
import { type AgentFacts, describe } from "./describe.ts";
import { dynamicChain, dynamicInstructions, dynamicTools } from "./dynamic.ts";
import { agentOf } from "./handle.ts";
import { HISTORY_CONTENT, History } from "./history.ts";
import type { Models } from "./models.ts";
import { type Settings, settle, TABLE_DEFAULTS } from "./options.ts";
import { createRunIds } from "./run.ts";
import { delegateTool } from "./sub-agents.ts";
import { type AgentTool, agentTool, toolSet } from "./tool-set.ts";

export interface AgentProblem {
  /** Where in the manifest: `["agents", "assistant", "tools", 0]`. */
  path: readonly (string | number)[];
  message: string;
}

/** What agents are linked with. */
export interface AgentParts {
  /** By their key in the manifest. */
  readonly tools: ReadonlyMap<string, Tool>;
  readonly models: Models;
}

export interface CompiledAgents {
  /** By id, in the order of the manifest. */
  agents: Map<string, Agent>;
  problems: AgentProblem[];
}

/**
 * Builds every agent. Names and expressions are checked with the references of the manifest, models when they are made;
 * what neither of them can know is in `problems`.
 */
export function compileAgents(manifest: Manifest, { tools, models }: AgentParts): CompiledAgents {
  const problems: AgentProblem[] = [];
  const compileSchema = createClientSchemas();
  const newRunId = createRunIds();
  const share = Math.floor(HISTORY_CONTENT / Math.max(1, Object.keys(manifest.agents).length));
  const known = new Map([...tools.values()].map((tool) => [tool.name, agentTool(tool)]));
  const cores = new Map<string, AgentCore>();
  const facts = new Map<string, AgentFacts>();

  for (const [id, agent] of Object.entries(manifest.agents)) {
    const path = ["agents", id];
    problems.push(...foreignTools(agent, path, manifest));
    const { name, description } = agent;
    const activity = new Activity();
    const subAgents = agent.subAgents.filter((subAgent) => Object.hasOwn(manifest.agents, subAgent));
    const delegate =
      subAgents.length === 0
        ? []
        : [
            delegateTool(
              subAgents.map((sub) => identityOf(manifest, sub)),
              cores,
            ),
          ];
    cores.set(id, {
      id,
      name,
      description,
      defaults: defaultsOf(agent, manifest),
      instructions: dynamicInstructions(agent, path),
      chain: dynamicChain(agent, models, path),
      tools: dynamicTools(agent, known, delegate, path),
      history: new History(id, share),
      newRunId,
      activity,
      compileSchema,
    });
    facts.set(id, { id, name, description, model: modelOf(agent), tools: declared(agent, known), subAgents, activity });
  }

  const agents = new Map<string, Agent>();
  for (const [id, core] of cores) agents.set(id, agentOf(core, describe(facts.get(id)!, facts)));
  return { agents, problems };
}

function identityOf(manifest: Manifest, id: string) {
  const { name, description } = manifest.agents[id]!;
  return { id, name, description };
}

/** Tools of MCP clients are no tools of the manifest, and this version has none. */
function foreignTools(agent: AgentManifest, path: readonly string[], manifest: Manifest): AgentProblem[] {
  const clients = Object.keys(manifest.mcp.clients);
  return agent.tools.flatMap((item, index) => {
    const name = typeof item === "string" ? item : item.use;
    const client = clients.find((key) => name.startsWith(`${key}_`));
    if (client === undefined || Object.hasOwn(manifest.tools, name)) return [];
    const message = `tool "${name}" would come from the MCP client "${client}", and this version does not call MCP servers`;
    return [{ path: [...path, "tools", index], message }];
  });
}

/** The agent's own options over its memory's settings over the table of the contract. */
function defaultsOf(agent: AgentManifest, manifest: Manifest): Settings {
  const memory = typeof agent.memory === "string" ? manifest.memory[agent.memory] : undefined;
  const base = settle(
    {
      contextLimit: memory?.contextLimit,
      semanticMemory: { semanticLimit: memory?.semantic?.limit, semanticThreshold: memory?.semantic?.threshold },
    },
    TABLE_DEFAULTS,
  );
  return Object.freeze(settle({ ...agent.options, maxSteps: agent.maxSteps }, base));
}

/** What the list shows: every tool that a request may be offered and that has a fixed name. */
function declared(agent: AgentManifest, known: ReadonlyMap<string, AgentTool>) {
  const names = agent.tools.map((item) => (typeof item === "string" ? item : item.use));
  return toolSet([...new Set(names)].flatMap((name) => known.get(name) ?? []));
}

const modelOf = ({ model }: AgentManifest): string => {
  if (typeof model !== "string") return model[0]!;
  return isTemplate(model) ? "dynamic" : model;
};
