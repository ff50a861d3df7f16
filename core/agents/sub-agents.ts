/** How an agent calls its sub-agents: through one tool, `delegate_task {agentId, task}`. */
import { invalid, listed, ServiceError } from "../lib/errors.ts";
import { threadId } from "../memory/threads.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { execute, prepareRun, type RunRequest } from "./run/execute.ts";
import { unfinished } from "./run/finish.ts";
import { runIdFrom } from "./run/journal.ts";
import type { AgentPart, PartSink } from "./run/parts.ts";
import { emptyRunResult } from "./run/run.ts";
import { type AgentTool, functionTool, type RunToolContext } from "./run/tool-set.ts";
import { addUsage } from "./run/usage.ts";

const DELEGATE_TASK = "delegate_task";

/** How deeply agents may delegate: each of them keeps its run open while its sub-agent works. */
const MAX_DEPTH = 5;

/**
 * @param subAgents names and descriptions of the agents that the model may call
 * @param agents all agents by id. Read only when a task is delegated, because not all of them exist yet when this is called.
 */
export function delegateTool(
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
