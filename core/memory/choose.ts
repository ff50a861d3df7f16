/** Chooses the memory that a request refers to. */
import { invalid, notFound, quoted } from "../lib/errors.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { Memory } from "./scoped.ts";

/** The name of the global memory in the manifest. */
const GLOBAL_MEMORY = "default";

export interface ChosenMemory {
  readonly memory: Memory;
  /** The resource of a new conversation when the request names none: the agent, else the memory itself. */
  readonly resourceId: string;
}

/** @throws ServiceError `not_found` for an unknown agent, `invalid_input` when the memory is ambiguous */
export type MemoryChoice = (agentId: string | undefined) => ChosenMemory;

/**
 * Prepares the choice at boot. A request that names an agent gets that agent's memory. A request that names none gets the global memory
 * or, without one, that of the only agent that has a memory.
 */
export function memoryChoice(manifest: Manifest, memories: ReadonlyMap<string, Memory>): MemoryChoice {
  const choices = new Map<string, ChosenMemory>();
  for (const [id, agent] of Object.entries(manifest.agents)) {
    const memory = agent.memory === false ? undefined : memories.get(agent.memory);
    if (memory !== undefined) choices.set(id, { memory, resourceId: id });
  }
  const fallback = memoryWithoutAgent(choices, memories);
  const hint = fallback !== undefined ? "" : explainMissingAgent([...choices.keys()]);
  return (agentId) => {
    if (agentId === undefined) {
      if (fallback === undefined) throw invalid(hint);
      return fallback;
    }
    const choice = choices.get(agentId);
    if (choice !== undefined) return choice;
    const shown = quoted(agentId);
    if (!Object.hasOwn(manifest.agents, agentId)) throw notFound(`agent ${shown} does not exist`);
    throw invalid(`agent ${shown} has no memory`);
  };
}

function memoryWithoutAgent(
  choices: ReadonlyMap<string, ChosenMemory>,
  memories: ReadonlyMap<string, Memory>,
): ChosenMemory | undefined {
  const global = memories.get(GLOBAL_MEMORY);
  if (global === undefined) return choices.size === 1 ? choices.values().next().value : undefined;
  const users = [...choices].flatMap(([id, { memory }]) => (memory === global ? [id] : []));
  return { memory: global, resourceId: defaultResource(GLOBAL_MEMORY, users) };
}

/** @throws ServiceError `not_found` */
export function namedMemory(manifest: Manifest, memories: ReadonlyMap<string, Memory>, name: string): ChosenMemory {
  const memory = memories.get(name);
  if (memory === undefined) throw notFound(`memory ${quoted(name)} does not exist`);
  const users = Object.entries(manifest.agents).flatMap(([id, agent]) => (agent.memory === name ? [id] : []));
  return { memory, resourceId: defaultResource(name, users) };
}

/** The id of the only agent with this memory, else the name of the memory. */
const defaultResource = (name: string, agents: readonly string[]) => (agents.length === 1 ? agents[0]! : name);

function explainMissingAgent(agents: readonly string[]): string {
  if (agents.length === 0) return "no agent has a memory: declare one under memory in the manifest";
  return `agentId is required: no memory is called "${GLOBAL_MEMORY}", and the agents ${agents.slice(0, 20).join(", ")} have one`;
}
