/** Builds the agents of the manifest at boot, and links them with their tools, models and each other. */
import type { Logger } from "pino";
import { SchemaRateLimit } from "../client-schema/rate.ts";
import { createClientSchemas } from "../client-schema/schemas.ts";
import { isIsolated } from "../identity/principal.ts";
import { invalid, listed, type Problem, ServiceError, unavailable } from "../lib/errors.ts";
import type { Uses } from "../lib/uses.ts";
import { isTemplate } from "../manifest/expression.ts";
import type { AgentManifest, Manifest } from "../manifest/manifest.ts";
import type { Memory } from "../memory/scoped.ts";
import { threadId } from "../memory/threads.ts";
import type { Models } from "../models/models.ts";
import type { Meters } from "../observability/metrics/meters.ts";
import { agentSpan } from "../observability/span.ts";
import type { Membership } from "../storage/membership.ts";
import type { Store } from "../storage/store.ts";
import type { Tool } from "../tools/tool.ts";
import { Agent } from "./agent.ts";
import { agentMemory, UPDATE_WORKING_MEMORY } from "./conversation/agent-memory.ts";
import { openTurns, type Turns } from "./conversation/turn-queue.ts";
import { type AgentFacts, describe, memoryConfig } from "./describe.ts";
import type { AgentHistories } from "./history/history.ts";
import { openHistories } from "./history/open.ts";
import { Activity } from "./run/activity.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { execute, prepareRun, type RunRequest } from "./run/execute.ts";
import { runIdFrom } from "./run/journal.ts";
import { DEFAULT_SETTINGS, type RunSettings, resolveOptions } from "./run/options.ts";
import type { AgentPart, PartSink } from "./run/parts.ts";
import { agentOptions, type RequestBounds } from "./run/prompt-bounds.ts";
import { createRunIds, emptyRunResult } from "./run/run.ts";
import { dynamicChain, dynamicInstructions, dynamicSources, dynamicTools, type SourceReader } from "./run/sources.ts";
import {
  type AgentTool,
  functionTool,
  type KnownTools,
  knownTools,
  type RunToolContext,
  toolSet,
} from "./run/tool-set.ts";
import { addUsage, unfinished } from "./run/usage.ts";
import type { Keeping, RunKeeper } from "./run-requests.ts";

// How an agent calls its sub-agents: through one tool, `delegate_task {agentId, task}`.

const DELEGATE_TASK = "delegate_task";

/** How deeply agents may delegate: each of them keeps its run open while its sub-agent works. */
const MAX_DEPTH = 5;

/**
 * @param subAgents names and descriptions of the agents that the model may call
 * @param agents all agents by id. Read only when a task is delegated, because not all of them exist yet when this is called.
 */
function delegateTool(
  subAgents: readonly { id: string; name: string; description: string }[],
  agents: ReadonlyMap<string, CompiledAgent>,
): AgentTool {
  const ids = subAgents.map((agent) => agent.id);
  const lines = subAgents.map(({ id, name, description }) => `- ${id} (${name})${description && `: ${description}`}`);
  const description = `Gives a task to another agent and returns its answer. The agents:\n${lines.join("\n")}`;
  const properties = {
    agentId: { type: "string", enum: ids, description: "Who does it." },
    task: { type: "string", minLength: 1, description: "What to do, with everything there is to know about it." },
  };
  const parameters = { type: "object", properties, required: ["agentId", "task"], additionalProperties: false };
  return {
    name: DELEGATE_TASK,
    definition: functionTool(DELEGATE_TASK, description, parameters),
    run(input, run) {
      const { agentId, task } = (input ?? {}) as { agentId?: unknown; task?: unknown };
      if (typeof agentId !== "string" || !ids.includes(agentId)) {
        throw invalid(`input.agentId must be one of ${listed(ids)}`);
      }
      if (typeof task !== "string" || task === "") throw invalid("input.task must be a non-empty string");
      return delegate(agents.get(agentId)!, task, run);
    },
  };
}

/** Runs the sub-agent. Its usage is added to that of the outer run, even when it fails. */
async function delegate(agent: CompiledAgent, task: string, run: RunToolContext): Promise<string> {
  const { depth, span, sink, toolCallId, usage, origin } = run;
  if (depth + 1 >= MAX_DEPTH) throw invalid(`agents may delegate ${MAX_DEPTH - 1} levels deep at most: do it yourself`);
  const { journal } = run;
  const runId = journal === undefined ? undefined : runIdFrom(origin.idempotencyKey!);
  const request = { ...inConversation(agent, run), input: task, depth: depth + 1, parentSpan: span, runId, journal };
  const outcome = emptyRunResult();
  try {
    await execute(agent, prepareRun(agent, request, origin.call), withSubAgent(sink, agent, toolCallId), outcome);
  } finally {
    addUsage(usage, outcome.usage);
  }
  const problem = unfinished(agent.id, outcome.finishReason);
  if (problem === null) return outcome.text;
  throw new ServiceError("provider_failed", outcome.text === "" ? problem : `${problem}. It had said: ${outcome.text}`);
}

/**
 * The sub-agent works in the conversation of the outer run and for its user. Its turns are stored in a thread beside the
 * conversation, one per agent: the messages between person and agent are not mixed with them, and each agent recalls what it
 * was told itself.
 */
function inConversation(
  { id }: CompiledAgent,
  { origin, memory }: RunToolContext,
): Pick<RunRequest, "options" | "thread"> {
  const { userId, conversationId, readOnly } = memory;
  return {
    options: {
      context: origin.context,
      memory: { userId, conversationId, options: readOnly ? { readOnly } : undefined },
    },
    thread: conversationId === undefined ? undefined : threadId(conversationId, id),
  };
}

/** Parts of a sub-agent that a reader would take for the start or the end of the outer run. */
const RUN_BOUNDARIES = new Set<AgentPart["type"]>(["start", "finish", "abort", "error"]);

/**
 * Marks the parts with the agent and with the call that delegated to it. Ids inside parts get that call's id as a prefix, because two
 * agents at work at the same time may use the same ones; so the marks of nested sub-agents still name its calls.
 */
function withSubAgent(sink: PartSink, { id, name }: CompiledAgent, callId: string): PartSink {
  const own = (innerId: string) => `${callId}:${innerId}`;
  return {
    get closed() {
      return sink.closed;
    },
    part(part) {
      if (RUN_BOUNDARIES.has(part.type)) return undefined;
      const { subAgentId = id, subAgentName = name, subAgentCallId } = part;
      const marked: Record<string, unknown> = {
        ...part,
        subAgentId,
        subAgentName,
        subAgentCallId: subAgentCallId === undefined ? callId : own(subAgentCallId),
      };
      if ("id" in part) marked.id = own(part.id);
      if ("toolCallId" in part) marked.toolCallId = own(part.toolCallId);
      return sink.part(marked as unknown as AgentPart);
    },
  };
}

/** How long a shutdown waits for aborted runs to store what they have generated. */
const SHUTDOWN_TIMEOUT_MS = 5_000;

/** The reader of sources when there are no MCP servers. */
const NO_SOURCES: SourceReader = { read: () => Promise.reject(unavailable("there are no MCP servers here")) };

/** What agents are linked with. */
interface AgentParts {
  /** Tools by their key in the manifest; those of MCP servers may be added later. */
  readonly tools: ReadonlyMap<string, Tool> & { readonly sources?: SourceReader };
  readonly models: Models;
  /** Memories by their name in the manifest. */
  readonly memories: ReadonlyMap<string, Memory>;
  /** Stores the history. */
  readonly store: Store;
  readonly logger: Logger;
  /** The processes that share the store. */
  readonly membership?: Membership | null;
  readonly meters?: Pick<Meters, "agents">;
  /** Default: new histories for these agents. */
  readonly histories?: AgentHistories;
  /** Default: new turns for these agents. */
  readonly turns?: Turns;
  /** Counts the runs of all agents. */
  readonly uses?: Uses;
}

interface CompiledAgents {
  /** Agents by id, in the order of the manifest. */
  agents: Map<string, Agent>;
  problems: Problem[];
  histories: Histories;
  /** Lets agents keep their runs with it from now on. */
  keepRuns(keeper: RunKeeper): void;
  /** Waits for aborted runs to store what they have generated. */
  whenIdle(): Promise<void>;
}

/** Whether a person may have to approve calls of its tools, or of those of its sub-agents. */
function mayAsk(
  id: string,
  agents: Readonly<Record<string, AgentManifest>>,
  tools: ReadonlyMap<string, Tool>,
  seen = new Set<string>(),
): boolean {
  if (seen.has(id) || !Object.hasOwn(agents, id)) return false;
  seen.add(id);
  const asks = (tool: Tool | undefined) => tool !== undefined && tool.approval !== false;
  const { tools: items, subAgents } = agents[id]!;
  const own = items.some((item) => {
    const use = typeof item === "string" ? item : item.use;
    return isTemplate(use) ? [...tools.values()].some(asks) : asks(tools.get(use));
  });
  return own || subAgents.some((subAgent) => mayAsk(subAgent, agents, tools, seen));
}

/** The life cycle of what agents keep in the store. */
interface Histories {
  /** Called once before the service listens: closes runs that an earlier process left open. */
  start(): Promise<void>;
  /** Called after the last request and before `store.close()`: nothing that was recorded is lost. */
  close(): Promise<void>;
}

/**
 * Builds every agent. References and expressions have been checked with the manifest, and models when they were created;
 * `problems` has what neither of these checks can find.
 */
export function compileAgents(manifest: Manifest, parts: AgentParts): CompiledAgents {
  const { tools, models, memories } = parts;
  const problems: Problem[] = [];
  const prepareSchema = createClientSchemas("result", new SchemaRateLimit());
  const newRunId = createRunIds();
  const { sample, otlp } = manifest.observability;
  const traced = sample > 0 || otlp.endpoint !== "";
  const isolated = isIsolated(manifest);
  const histories = parts.histories ?? openHistories(manifest, parts);
  const turns = parts.turns ?? openTurns(manifest, parts);
  const keeping: Keeping = { keeper: null };
  const known = knownTools(tools);
  // All tools have the same.
  const inbox = [...tools.values()].find((tool) => tool.inbox !== undefined)?.inbox;
  const compiled = new Map<string, CompiledAgent>();
  const facts = new Map<string, AgentFacts>();

  for (const [id, agent] of Object.entries(manifest.agents)) {
    const path = ["agents", id];
    const { name, description } = agent;
    const memory = agent.memory === false ? undefined : memories.get(agent.memory);
    problems.push(...reservedToolNames(agent, path, memory));
    const activity = new Activity(parts.uses);
    const subAgents = agent.subAgents.filter((subAgent) => Object.hasOwn(manifest.agents, subAgent));
    const identities = subAgents.map((subAgent) => subAgentIdentity(manifest, subAgent));
    const delegate = identities.length === 0 ? [] : [delegateTool(identities, compiled)];
    compiled.set(id, {
      id,
      name,
      description,
      entity: Object.freeze({ type: "agent", id, name }),
      spanName: agentSpan(name),
      ...requestSettings(agent, manifest),
      instructions: dynamicInstructions(agent, path),
      sources: dynamicSources(agent, path),
      reader: parts.tools.sources ?? NO_SOURCES,
      chain: dynamicChain(agent, models, path),
      tools: dynamicTools(agent, known, delegate, path),
      toolOutput: agent.toolOutput,
      memory: memory === undefined ? null : agentMemory(id, memory, models, turns.queue),
      history: histories.forAgent(id),
      newRunId,
      activity,
      durable: agent.durable,
      asks: mayAsk(id, manifest.agents, tools),
      inbox,
      recovery: agent.recovery,
      keeping,
      runs: parts.meters?.agents.of(id),
      isolated,
      prepareSchema,
    });
    facts.set(id, {
      id,
      name,
      description,
      model: declaredModel(agent),
      tools: declaredTools(agent, known),
      subAgents,
      activity,
      traced,
      memory: memory === undefined ? null : { config: memoryConfig(memory.name, memory.settings) },
    });
  }

  const agents = new Map<string, Agent>();
  for (const [id, agent] of compiled) agents.set(id, new Agent(agent, describe(facts.get(id)!, facts)));
  const whenIdle = async () => {
    await Promise.all([...compiled.values()].map(({ activity }) => activity.whenIdle(SHUTDOWN_TIMEOUT_MS)));
  };
  return {
    agents,
    problems,
    keepRuns(keeper) {
      keeping.keeper = keeper;
    },
    whenIdle,
    histories: {
      async start() {
        await turns.start();
        await histories.start();
      },
      async close() {
        await whenIdle();
        await histories.close();
        await turns.close();
      },
    },
  };
}

/** Reports tools with reserved names: an agent with a working memory has a built-in tool that updates it. */
function reservedToolNames(agent: AgentManifest, path: readonly string[], memory: Memory | undefined): Problem[] {
  if (memory?.settings.workingMemory === undefined) return [];
  return agent.tools.flatMap((item, index) => {
    const name = typeof item === "string" ? item : item.use;
    if (name !== UPDATE_WORKING_MEMORY) return [];
    const message = `the working memory of memory "${memory.name}" has a tool of this name: give yours another`;
    return [{ path: [...path, "tools", index], message }];
  });
}

function subAgentIdentity(manifest: Manifest, id: string) {
  const { name, description } = manifest.agents[id]!;
  return { id, name, description };
}

/** The agent's own options, else its memory's settings, else the defaults of the schemas; and the bounds of requests. */
function requestSettings(agent: AgentManifest, manifest: Manifest): { defaults: RunSettings; bounds: RequestBounds } {
  const memory = typeof agent.memory === "string" ? manifest.memory[agent.memory] : undefined;
  const base = resolveOptions(
    {
      contextLimit: memory?.contextLimit,
      semanticMemory: { semanticLimit: memory?.semantic?.limit, semanticThreshold: memory?.semantic?.threshold },
    },
    DEFAULT_SETTINGS,
  );
  const { options, bounds } = agentOptions(agent, base);
  // Not frozen: a run for a user with a token copies them, and copying a frozen object would take six times as long.
  return { defaults: resolveOptions(options, base), bounds };
}

/** The tools in the list of agents: those with a fixed name that a request may be offered. */
function declaredTools(agent: AgentManifest, known: KnownTools) {
  const names = agent.tools.map((item) => (typeof item === "string" ? item : item.use));
  return toolSet([...new Set(names)].flatMap((name) => known.get(name) ?? []));
}

const declaredModel = ({ model }: AgentManifest): string => {
  if (typeof model !== "string") return model[0]!;
  return isTemplate(model) ? "dynamic" : model;
};
