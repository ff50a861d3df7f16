/** The tools that a run may call, and how they are described to the model. */
import type { LanguageModelV3FunctionTool } from "@ai-sdk/provider";
import { type ClientSchema, foreignSchema, type PrepareSchema } from "../../client-schema/schemas.ts";
import { invalid, messageOf } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import type { Span } from "../../observability/span.ts";
import { executeTool } from "../../tools/execute.ts";
import type { ApprovalInbox, Tool, ToolOrigin } from "../../tools/tool.ts";
import type { Turn } from "../conversation/turn.ts";
import { modelToolName } from "../prompt/tool-names.ts";
import type { RunCall } from "./caller.ts";
import type { RunJournal } from "./journal.ts";
import { type MemorySettings, schemaRateKey } from "./options.ts";
import type { PartSink, Usage } from "./parts.ts";

/** The context of one tool call. `sink` takes the parts of a sub-agent. */
export interface RunToolContext {
  readonly origin: ToolOrigin & { readonly call: RunCall };
  readonly toolCallId: string;
  /** What the run uses: a sub-agent adds to it. */
  readonly usage: Usage;
  /** Whose run it is, and its conversation. */
  readonly memory: MemorySettings;
  readonly sink: PartSink;
  /** How many agents have delegated down to the one that calls. */
  readonly depth: number;
  /** The run's turn of its conversation; null without memory. */
  readonly turn: Turn | null;
  /** For a sub-agent, where the run has a journal. */
  readonly journal: RunJournal | undefined;
  /** The span of the call; null when it is not traced. */
  readonly span: Span | null;
}

export interface AgentTool {
  readonly name: string;
  /** Its definition changes while the service runs. */
  readonly changes?: boolean;
  readonly definition: LanguageModelV3FunctionTool;
  /** Most bytes of a result that the model is shown; undefined: as the agent says. */
  readonly outputLimit?: number | undefined;
  /** Where people are asked whether it may run. */
  readonly inbox?: ApprovalInbox | undefined;
  /** Run by the client: what is wrong with an input, or null. */
  readonly clientInput?: (input: unknown) => string | null;
  /** Returns the result or a promise of it. May throw. */
  run(input: unknown, run: RunToolContext): unknown;
}

export interface ToolSet {
  /** Undefined when there are none, since some providers refuse an empty list. Read anew each time if some of them change. */
  readonly definitions: LanguageModelV3FunctionTool[] | undefined;
  readonly byName: ReadonlyMap<string, AgentTool>;
  /** The tools whose names a provider would refuse: their own names by those that models are told. */
  readonly namesForModels: ReadonlyMap<string, string> | null;
}

export function toolSet(tools: readonly AgentTool[]): ToolSet {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  const namesForModels = renamed(tools);
  if (tools.some((tool) => tool.changes)) {
    return {
      byName,
      namesForModels,
      get definitions() {
        return tools.map((tool) => tool.definition);
      },
    };
  }
  const definitions = tools.length === 0 ? undefined : tools.map((tool) => tool.definition);
  return { byName, namesForModels, definitions };
}

function renamed(tools: readonly AgentTool[]): Map<string, string> | null {
  const others = tools.filter(({ name }) => modelToolName(name) !== name);
  return others.length === 0 ? null : new Map(others.map(({ name }) => [modelToolName(name), name]));
}

/** What the manifest calls the tool that models are told under this name. */
export const ownToolName = ({ namesForModels }: ToolSet, name: string): string => namesForModels?.get(name) ?? name;

export const NO_TOOLS: ToolSet = Object.freeze(toolSet([]));

/** Adapts a tool of the registry for agents. `executeTool` checks approval, input, time limit and signal. */
function agentTool(tool: Tool): AgentTool {
  const { name, outputLimit, changes = false } = tool;
  const run: AgentTool["run"] = (input, { origin }) => executeTool(tool, input, origin);
  if (!changes) {
    const definition = functionTool(name, tool.description, tool.parameters);
    if (!tool.client) return { name, outputLimit, run, definition, inbox: tool.inbox };
    return { name, outputLimit, run, definition, clientInput: (input) => tool.validate(input) };
  }
  return {
    name,
    outputLimit,
    changes,
    run,
    get definition() {
      return functionTool(name, tool.description, tool.parameters);
    },
  };
}

/** The tools of the manifest by name, adapted for agents. */
export interface KnownTools {
  get(name: string): AgentTool | undefined;
}

/** Adapts each tool once. */
export function knownTools(tools: ReadonlyMap<string, Tool>): KnownTools {
  const adapted = new WeakMap<Tool, AgentTool>();
  return {
    get(name) {
      const tool = tools.get(name);
      if (tool === undefined) return undefined;
      const known = adapted.get(tool) ?? agentTool(tool);
      adapted.set(tool, known);
      return known;
    },
  };
}

/** In the form that all providers take: an object lists its properties, and a description is not empty. */
export function functionTool(name: string, description: string, parameters: object): LanguageModelV3FunctionTool {
  const isWhole = "properties" in parameters || (parameters as { type?: unknown }).type !== "object";
  const inputSchema = isWhole ? parameters : { ...parameters, properties: {} };
  const tool = { type: "function", name: modelToolName(name), inputSchema } as const;
  return description.trim() === "" ? tool : { ...tool, description };
}

// Tools that a request brings: the client runs them, and posts their results with its next request.

export interface ClientTool {
  readonly name: string;
  readonly description?: string | undefined;
  /** JSON Schema of its input. Default: any object. */
  readonly parameters?: unknown;
  readonly strict?: boolean | undefined;
  /** Where it stands in the request; default: by its place in the list. */
  readonly path?: string;
}

export interface ClientTools {
  /** Where they stand in the request, for messages: `tools`. */
  readonly field: string;
  readonly list: readonly ClientTool[];
}

/**
 * The tools of a run and those of its client. A tool of the manifest that the client runs anyway keeps its own definition.
 *
 * @throws ServiceError `invalid_input` for a name that is taken, and for parameters that are no object
 */
export function withClientTools(
  own: ToolSet,
  { field, list }: ClientTools,
  { prepareSchema }: { readonly prepareSchema: PrepareSchema },
  call: RunCall,
): ToolSet {
  const added = new Map<string, AgentTool>();
  for (const [index, { name, description = "", parameters = {}, strict, path: place }] of list.entries()) {
    const path = place ?? `${field}[${index}]`;
    const known = own.byName.get(name);
    if (known?.clientInput !== undefined) continue;
    const shown = JSON.stringify(name.slice(0, MAX_NAME));
    if (known !== undefined) throw invalid(`${path}.name: the agent has a tool ${shown} of its own`);
    if (added.has(name)) throw invalid(`${path}.name: ${shown} is there twice`);
    if (!isObject(parameters)) throw invalid(`${path}.parameters must be object`);
    // A schema that says nothing of the type is one of an object: models give nothing else.
    const schema = foreignSchema(
      prepareSchema,
      call.logger,
      name.slice(0, MAX_NAME),
      { type: "object", ...parameters },
      `${path}.parameters`,
      schemaRateKey(call),
    );
    const described = functionTool(name, description, schema.schema);
    const definition = strict === undefined ? described : { ...described, strict };
    const clientInput = (input: unknown) => problemOf(schema, input);
    const run = (input: unknown) => {
      throw invalid(clientInput(input) ?? `tool ${shown} runs in the client`);
    };
    added.set(name, { name, definition, clientInput, run });
  }
  return added.size === 0 ? own : toolSet([...own.byName.values(), ...added.values()]);
}

/** Of a name in an error: clients choose how long they are. */
const MAX_NAME = 128;

/** An input that takes too much work to check is no input: the model is told so. */
function problemOf(schema: ClientSchema, input: unknown): string | null {
  try {
    return schema.problems(input);
  } catch (error) {
    return messageOf(error);
  }
}
