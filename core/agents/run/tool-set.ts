/** The tools that a run may call, and what the model is told of them. */
import type { LanguageModelV3FunctionTool } from "@ai-sdk/provider";
import type { Span } from "../../observability/span.ts";
import { executeTool } from "../../tools/execute.ts";
import type { Tool, ToolOrigin } from "../../tools/tool.ts";
import type { RunCall } from "../agent.ts";
import type { Turn } from "../conversation/turn.ts";
import type { PartSink } from "./parts.ts";

/** One tool call's surroundings. `sink` takes the parts of a sub-agent. */
export interface ToolRun {
  readonly origin: ToolOrigin & { readonly call: RunCall };
  readonly sink: PartSink;
  /** How many agents stand above the one that calls. */
  readonly depth: number;
  /** The conversation that the run belongs to; null without memory. */
  readonly turn: Turn | null;
  /** Of the call; null when it is not traced. */
  readonly span: Span | null;
}

export interface AgentTool {
  readonly name: string;
  /** Its definition changes while the service runs. */
  readonly changes?: boolean;
  readonly definition: LanguageModelV3FunctionTool;
  /** Gives or throws at once, or gives a promise. */
  run(input: unknown, run: ToolRun): unknown;
}

export interface ToolSet {
  /** Undefined when there are none: some providers refuse an empty list. Made anew each time when some of them change. */
  readonly definitions: LanguageModelV3FunctionTool[] | undefined;
  readonly byName: ReadonlyMap<string, AgentTool>;
}

export function toolSet(tools: readonly AgentTool[]): ToolSet {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  if (tools.some((tool) => tool.changes)) {
    return {
      byName,
      get definitions() {
        return tools.map((tool) => tool.definition);
      },
    };
  }
  return { byName, definitions: tools.length === 0 ? undefined : tools.map((tool) => tool.definition) };
}

export const NO_TOOLS: ToolSet = Object.freeze(toolSet([]));

/** A tool of the registry, as an agent calls it: `executeTool` checks approval, input, time limit and signal. */
export function agentTool(tool: Tool): AgentTool {
  const { name, changes = false } = tool;
  const run: AgentTool["run"] = (input, { origin }) => executeTool(tool, input, origin);
  if (!changes) return { name, run, definition: definitionOf(name, tool.description, tool.parameters) };
  return {
    name,
    changes,
    run,
    get definition() {
      return definitionOf(name, tool.description, tool.parameters);
    },
  };
}

/** Tools by their names in the manifest, as agents call them. */
export interface KnownTools {
  get(name: string): AgentTool | undefined;
}

/** Of each tool the same one every time. */
export function knownTools(tools: ReadonlyMap<string, Tool>): KnownTools {
  const made = new WeakMap<Tool, AgentTool>();
  return {
    get(name) {
      const tool = tools.get(name);
      if (tool === undefined) return undefined;
      const known = made.get(tool) ?? agentTool(tool);
      made.set(tool, known);
      return known;
    },
  };
}

export function definitionOf(name: string, description: string, parameters: object): LanguageModelV3FunctionTool {
  return { type: "function", name, description, inputSchema: parameters };
}
