/** Which memory a request means, and on whose behalf it comes. */
import { invalid, notFound, ServiceError } from "../errors.ts";
import type { Caller, Context } from "../http/route.ts";
import { userIdOf } from "../http/user.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { EVERYTHING, type Memory, type Principal } from "./memory.ts";
import { actingUser as boundUser } from "./ownership.ts";

/** The name of the global memory in the manifest. */
const GLOBAL = "default";

export interface ChosenMemory {
  readonly memory: Memory;
  /** What a new conversation belongs to unless the request says so: the agent, else the memory itself. */
  readonly resourceId: string;
}

/** @throws ServiceError `not_found` for an unknown agent, `invalid_input` when it is not clear which memory is meant */
export type MemoryChoice = (agentId: string | undefined) => ChosenMemory;

/**
 * The choice, settled at boot: the memory of the agent that is named; without a name the global memory, else that of
 * the only agent with a memory.
 */
export function memoryChoice(manifest: Manifest, memories: ReadonlyMap<string, Memory>): MemoryChoice {
  const choices = new Map<string, ChosenMemory>();
  for (const [id, agent] of Object.entries(manifest.agents)) {
    const memory = agent.memory === false ? undefined : memories.get(agent.memory);
    if (memory !== undefined) choices.set(id, { memory, resourceId: id });
  }
  const fallback = unnamed(choices, memories);
  const hint = fallback !== undefined ? "" : unclear([...choices.keys()]);
  return (agentId) => {
    if (agentId === undefined) {
      if (fallback === undefined) throw invalid(hint);
      return fallback;
    }
    const choice = choices.get(agentId);
    if (choice !== undefined) return choice;
    const shown = JSON.stringify(agentId.slice(0, 128));
    if (!Object.hasOwn(manifest.agents, agentId)) throw notFound(`agent ${shown} does not exist`);
    throw invalid(`agent ${shown} has no memory`);
  };
}

function unnamed(
  choices: ReadonlyMap<string, ChosenMemory>,
  memories: ReadonlyMap<string, Memory>,
): ChosenMemory | undefined {
  const global = memories.get(GLOBAL);
  if (global === undefined) return choices.size === 1 ? choices.values().next().value : undefined;
  const users = [...choices].flatMap(([id, { memory }]) => (memory === global ? [id] : []));
  return { memory: global, resourceId: resourceOf(GLOBAL, users) };
}

/** @throws ServiceError `not_found` */
export function namedMemory(manifest: Manifest, memories: ReadonlyMap<string, Memory>, name: string): ChosenMemory {
  const memory = memories.get(name);
  if (memory === undefined) throw notFound(`memory ${JSON.stringify(name.slice(0, 128))} does not exist`);
  const users = Object.entries(manifest.agents).flatMap(([id, agent]) => (agent.memory === name ? [id] : []));
  return { memory, resourceId: resourceOf(name, users) };
}

/** The only agent with a memory, else the memory itself. */
const resourceOf = (name: string, agents: readonly string[]) => (agents.length === 1 ? agents[0]! : name);

function unclear(agents: readonly string[]): string {
  if (agents.length === 0) return "no agent has a memory: declare one under memory in the manifest";
  return `agentId is required: no memory is called "${GLOBAL}", and the agents ${agents.slice(0, 20).join(", ")} have one`;
}

/** Whether stored objects belong to the token's user. Without authentication nobody is known, so that nothing can belong to somebody. */
export const isIsolated = ({ auth: { mode, isolation } }: Pick<Manifest, "auth">): boolean =>
  mode !== "none" && isolation === "user";

/** Whom a request comes from, as far as stored objects are concerned. */
export type Requester = Pick<Context<unknown>, "user" | "caller">;

/** Those without a user have what belongs to nobody. */
const OWNERLESS: Principal = Object.freeze({ userId: null, isolated: true });

export const seesEverything = ({ kind }: Caller): boolean => kind === "console" || kind === "dev";

/**
 * On whose behalf a request acts. The console and the bypass of development see everything.
 *
 * @param isolated whether stored objects belong to the token's user
 * @throws ServiceError `unauthorized` where they do and the token names none
 */
export function principalOf({ user, caller }: Requester, isolated: boolean): Principal {
  if (seesEverything(caller)) return EVERYTHING;
  if (user === null) return isolated ? OWNERLESS : EVERYTHING;
  const userId = userIdOf(user);
  if (isolated && userId === null) throw nameless();
  return { userId, isolated };
}

const nameless = () =>
  new ServiceError("unauthorized", "the token names no user (id or sub), and stored objects belong to users", {
    headers: { "www-authenticate": 'Bearer error="invalid_token"' },
  });

/**
 * The user that something is done for: with isolation that of the token, else the one given, else that of the token.
 *
 * @throws ServiceError `invalid_input` when an isolated caller names somebody else
 */
export function actingUser(principal: Principal, given: string | undefined): string | undefined {
  return boundUser(principal, given) ?? principal.userId ?? undefined;
}

/** The same where there must be one. */
export function requiredUser(principal: Principal, given: string | undefined): string {
  const user = actingUser(principal, given);
  if (user === undefined) throw invalid("userId is required");
  return user;
}
