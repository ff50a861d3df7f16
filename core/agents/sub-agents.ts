/** How an agent calls its sub-agents: through one tool, `delegate_task {agentId, task}`. */
import { invalid } from "../lib/errors.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { execute, prepareRun } from "./run/execute.ts";
import type { AgentPart, PartSink } from "./run/parts.ts";
import { type AgentTool, functionTool, type RunToolContext } from "./run/tool-set.ts";

const DELEGATE_TASK = "delegate_task";

/** How deep agents may delegate: each of them keeps its run open while its sub-agent works. */
const MAX_DEPTH = 5;

/**
 * @param subAgents what the model is told of the agents it may call
 * @param agents all agents by id. Read only when a task is delegated, since not all of them exist yet when this is called.
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
        throw invalid(`input.agentId must be one of ${ids.map((id) => JSON.stringify(id)).join(", ")}`);
      }
      if (typeof task !== "string" || task === "") throw invalid("input.task must be a non-empty string");
      return delegate(agents.get(agentId)!, task, run);
    },
  };
}

async function delegate(
  agent: CompiledAgent,
  task: string,
  { origin, sink, depth, span }: RunToolContext,
): Promise<string> {
  if (depth + 1 >= MAX_DEPTH) throw invalid(`agents may delegate ${MAX_DEPTH - 1} levels deep at most: do it yourself`);
  const request = { input: task, options: { context: origin.context }, depth: depth + 1, parentSpan: span };
  const outcome = await execute(agent, prepareRun(agent, request, origin.call), withSubAgent(sink, agent));
  return outcome.text;
}

/** Parts of a sub-agent that a reader would take for the start or the end of the outer run. */
const RUN_BOUNDARIES = new Set<AgentPart["type"]>(["start", "finish", "abort", "error"]);

function withSubAgent(sink: PartSink, { id: subAgentId, name: subAgentName }: CompiledAgent): PartSink {
  return {
    get closed() {
      return sink.closed;
    },
    part(part) {
      if (RUN_BOUNDARIES.has(part.type)) return undefined;
      // A part of a sub-agent of this sub-agent already has the name of its agent.
      return sink.part(part.subAgentId === undefined ? { ...part, subAgentId, subAgentName } : part);
    },
  };
}
