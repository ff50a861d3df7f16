/** Sub-agents as one tool of the agent above them: `delegate_task {agentId, task}`. */
import { invalid } from "../lib/errors.ts";
import type { AgentCore } from "./run/compiled-agent.ts";
import { execute, prepareRun } from "./run/execute.ts";
import type { AgentPart, PartSink } from "./run/parts.ts";
import { type AgentTool, definitionOf, type ToolRun } from "./run/tool-set.ts";

export const DELEGATE_TASK = "delegate_task";

/** Agents above each other at most: each of them holds its run open while those below it work. */
const DEEPEST = 5;

/**
 * @param agents by id, in the order of the manifest. Read when a task is delegated, so that agents may name each other;
 * `describe` gives their names and descriptions ahead.
 */
export function delegateTool(
  subAgents: readonly { id: string; name: string; description: string }[],
  agents: ReadonlyMap<string, AgentCore>,
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
    definition: definitionOf(DELEGATE_TASK, description, parameters),
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

async function delegate(core: AgentCore, task: string, { origin, sink, depth, span }: ToolRun): Promise<string> {
  if (depth + 1 >= DEEPEST) throw invalid(`agents may delegate ${DEEPEST - 1} levels deep at most: do it yourself`);
  const request = { input: task, options: { context: origin.context }, depth: depth + 1, above: span };
  const outcome = await execute(core, prepareRun(core, request, origin.call), marked(sink, core));
  return outcome.text;
}

/** Parts that would end the reader's own run, or begin it a second time. */
const OWN = new Set<AgentPart["type"]>(["start", "finish", "abort", "error"]);

function marked(sink: PartSink, { id: subAgentId, name: subAgentName }: AgentCore): PartSink {
  return {
    get closed() {
      return sink.closed;
    },
    part(part) {
      if (OWN.has(part.type)) return undefined;
      // What comes from further below keeps the name of the agent that said it.
      return sink.part(part.subAgentId === undefined ? { ...part, subAgentId, subAgentName } : part);
    },
  };
}
