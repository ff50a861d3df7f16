/** Boot: the agents of the manifest, linked with their tools, models and each other. */
import type { Logger } from "pino";
import { SchemaRate } from "../client-schema/rate.ts";
import { createClientSchemas } from "../client-schema/schemas.ts";
import { isIsolated } from "../identity/principal.ts";
import type { Problem } from "../lib/problem.ts";
import { isTemplate } from "../manifest/expression.ts";
import type { AgentManifest, Manifest } from "../manifest/manifest.ts";
import type { Memory } from "../memory/memory.ts";
import type { Models } from "../models/models.ts";
import { agentSpan } from "../observability/attributes.ts";
import type { Meters } from "../observability/metrics/meters.ts";
import { isVolatile } from "../storage/sharing.ts";
import type { Store } from "../storage/store.ts";
import type { Tool } from "../tools/tool.ts";
import type { Agent } from "./agent.ts";
import { agentMemory } from "./conversation/agent-memory.ts";
import { UPDATE_WORKING_MEMORY } from "./conversation/working-memory.ts";
import { type AgentDescriptionInput, describe, memoryConfig } from "./describe.ts";
import { agentOf } from "./endpoints.ts";
import type { HistoryOfAgents } from "./history/history.ts";
import { ringHistories } from "./history/ring.ts";
import { StoredHistories } from "./history/stored.ts";
import { Activity } from "./run/activity.ts";
import type { AgentCore } from "./run/compiled-agent.ts";
import { dynamicChain, dynamicInstructions, dynamicTools } from "./run/dynamic.ts";
import { resolveOptions, type Settings, TABLE_DEFAULTS } from "./run/options.ts";
import { createRunIds } from "./run/run.ts";
import { type KnownTools, knownTools, toolSet } from "./run/tool-set.ts";
import { delegateTool } from "./sub-agents.ts";

/** Milliseconds that runs which were cut off get to store what they have said. */
const PATIENCE = 5_000;

/** What agents are linked with. */
export interface AgentParts {
  /** By their key in the manifest; those of MCP servers may come later. */
  readonly tools: ReadonlyMap<string, Tool>;
  readonly models: Models;
  /** By their name in the manifest. */
  readonly memories: ReadonlyMap<string, Memory>;
  /** Where the history goes. */
  readonly store: Store;
  readonly logger: Logger;
  readonly meters?: Pick<Meters, "agents">;
}

export interface CompiledAgents {
  /** By id, in the order of the manifest. */
  agents: Map<string, Agent>;
  problems: Problem[];
  histories: Histories;
}

/** What agents keep in the store, as boot begins and ends it. */
export interface Histories {
  /** Called once before the service listens: settles what an earlier process left open. */
  start(): Promise<void>;
  /** Called after the last request and before `store.close()`: nothing that was said or recorded is lost. */
  close(): Promise<void>;
}

/**
 * Builds every agent. Names and expressions are checked with the references of the manifest, models when they are made;
 * what neither of them can know is in `problems`.
 */
export function compileAgents(manifest: Manifest, parts: AgentParts): CompiledAgents {
  const { tools, models, memories } = parts;
  const problems: Problem[] = [];
  const prepareSchema = createClientSchemas("result", new SchemaRate());
  const newRunId = createRunIds();
  const { sample, otlp } = manifest.observability;
  const traced = sample > 0 || otlp.endpoint !== "";
  const isolated = isIsolated(manifest);
  const histories = historiesOf(manifest, parts, isolated);
  const known = knownTools(tools);
  const cores = new Map<string, AgentCore>();
  const facts = new Map<string, AgentDescriptionInput>();

  for (const [id, agent] of Object.entries(manifest.agents)) {
    const path = ["agents", id];
    const { name, description } = agent;
    const memory = agent.memory === false ? undefined : memories.get(agent.memory);
    problems.push(...takenNames(agent, path, memory));
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
      entity: Object.freeze({ type: "agent", id, name }),
      spanName: agentSpan(name),
      defaults: defaultsOf(agent, manifest),
      instructions: dynamicInstructions(agent, path),
      chain: dynamicChain(agent, models, path),
      tools: dynamicTools(agent, known, delegate, path),
      memory: memory === undefined ? null : agentMemory(id, memory),
      history: histories.of(id),
      newRunId,
      activity,
      runs: parts.meters?.agents.of(id),
      isolated,
      prepareSchema,
    });
    facts.set(id, {
      id,
      name,
      description,
      model: modelOf(agent),
      tools: declared(agent, known),
      subAgents,
      activity,
      traced,
      memory: memory === undefined ? null : { config: memoryConfig(memory.name, memory.settings) },
    });
  }

  const agents = new Map<string, Agent>();
  for (const [id, core] of cores) agents.set(id, agentOf(core, describe(facts.get(id)!, facts)));
  return {
    agents,
    problems,
    histories: {
      start: () => histories.start(),
      async close() {
        await Promise.all([...cores.values()].map(({ activity }) => activity.idle(PATIENCE)));
        await histories.close();
      },
    },
  };
}

/** A store that keeps nothing itself needs no copy of its own of what the process keeps anyway. */
function historiesOf(manifest: Manifest, { store, logger }: AgentParts, isolated: boolean): HistoryOfAgents {
  const agents = Object.keys(manifest.agents);
  if (isVolatile(store)) return ringHistories(agents.length);
  return new StoredHistories(store, { agents, retention: manifest.history.retention, logger, isolated });
}

/** The tool of the working memory is there under its own name. */
function takenNames(agent: AgentManifest, path: readonly string[], memory: Memory | undefined): Problem[] {
  if (memory?.settings.workingMemory === undefined) return [];
  return agent.tools.flatMap((item, index) => {
    const name = typeof item === "string" ? item : item.use;
    if (name !== UPDATE_WORKING_MEMORY) return [];
    const message = `the working memory of memory "${memory.name}" has a tool of this name: give yours another`;
    return [{ path: [...path, "tools", index], message }];
  });
}

function identityOf(manifest: Manifest, id: string) {
  const { name, description } = manifest.agents[id]!;
  return { id, name, description };
}

/** The agent's own options over its memory's settings over the table of the contract. */
function defaultsOf(agent: AgentManifest, manifest: Manifest): Settings {
  const memory = typeof agent.memory === "string" ? manifest.memory[agent.memory] : undefined;
  const base = resolveOptions(
    {
      contextLimit: memory?.contextLimit,
      semanticMemory: { semanticLimit: memory?.semantic?.limit, semanticThreshold: memory?.semantic?.threshold },
    },
    TABLE_DEFAULTS,
  );
  // Not frozen: a run for the user of a token copies them, which would take six times as long.
  return resolveOptions({ ...agent.options, maxSteps: agent.maxSteps }, base);
}

/** What the list shows: every tool that a request may be offered and that has a fixed name. */
function declared(agent: AgentManifest, known: KnownTools) {
  const names = agent.tools.map((item) => (typeof item === "string" ? item : item.use));
  return toolSet([...new Set(names)].flatMap((name) => known.get(name) ?? []));
}

const modelOf = ({ model }: AgentManifest): string => {
  if (typeof model !== "string") return model[0]!;
  return isTemplate(model) ? "dynamic" : model;
};
