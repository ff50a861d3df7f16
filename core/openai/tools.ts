/** What requests of both protocols say in the same way: functions, which of them the model may call, and options. */
import type { GenerateOptions } from "../../generated/types.ts";
import type { ClientTool } from "../agents/run/tool-set.ts";
import type { ProtocolBody } from "../agents/run-requests.ts";
import { invalid } from "../lib/errors.ts";
import { type Fields, isObject } from "../lib/is-object.ts";
import { type FieldNames, unsupported } from "./errors.ts";

// Options that Chat Completions and Responses share, converted to those of agents.

/** Their names in requests, by those of agents. */
export const SAMPLING: FieldNames = {
  temperature: "temperature",
  topP: "top_p",
  frequencyPenalty: "frequency_penalty",
  presencePenalty: "presence_penalty",
};

/** Null counts as missing: then the agent's own option applies. The metadata becomes the context of the run. */
export function optionsOf(body: object, names: FieldNames): GenerateOptions {
  const given = Object.entries({ ...names, context: "metadata" }).map(([option, name]) => [
    option,
    (body as Fields)[name],
  ]);
  return Object.fromEntries(given.filter(([, value]) => !isNothing(value)));
}

/** @param field the place of the schema in the request */
export function readFormat(type: string | undefined, schema: unknown, field: string): ProtocolBody["json"] {
  if (type === undefined || type === "text") return undefined;
  if (type === "json_object") return { schema: undefined, field };
  if (!isObject(schema)) throw invalid(`${field} must be object`);
  return { schema, field };
}

export type ToolsOfRequest = Pick<ProtocolBody, "clientTools" | "toolChoice">;

const NAME = /^[A-Za-z0-9_-]{1,64}$/;
const NO_PARAMETERS = { type: "object", properties: {} };

/** Reads a function of a request. @param fields an object with its name, at `path` */
export function readFunction({ name, description, parameters, strict }: Fields, path: string): ClientTool {
  const field = `${path}.name`;
  if (typeof name !== "string" || !NAME.test(name))
    throw invalid(`${field} must be 1 to 64 letters, digits, "_" or "-"`);
  if (!isNothing(description) && typeof description !== "string") throw invalid(`${path}.description must be string`);
  if (!isNothing(parameters) && !isObject(parameters)) throw invalid(`${path}.parameters must be object`);
  const tool = { name, description: description ?? "", parameters: parameters ?? NO_PARAMETERS, path };
  return typeof strict === "boolean" ? { ...tool, strict } : tool;
}

/** Accepts only functions, because a client can bring no other tools. */
export function requireFunction(tool: Fields, path: string): void {
  if (tool.type !== "function")
    throw unsupported(`${path}.type`, 'must be "function": other tools are those of the agent');
}

/**
 * Reads `tool_choice`, which is about the functions of the request: `required` and a name can only mean these, and with `none` the agent
 * keeps its own tools.
 *
 * @param nameOf returns the name of a function if the choice names one
 */
export function chooseTools(
  tools: readonly ClientTool[],
  choice: unknown,
  nameOf: (choice: Fields) => unknown,
): ToolsOfRequest {
  if (isNothing(choice) || choice === "auto") return brought(tools);
  if (choice === "none") return {};
  if (choice === "required") return { ...brought(atLeastOne(tools)), toolChoice: { type: "required" } };
  if (!isObject(choice))
    throw invalid('tool_choice must be "none", "auto", "required" or an object that names a function');
  if (choice.type === "allowed_tools") return allowedTools(tools, choice, nameOf);
  if (choice.type !== "function") throw invalid('tool_choice.type must be "function" or "allowed_tools"');
  const { name } = namedTool(tools, nameOf(choice), "tool_choice");
  return { ...brought(tools), toolChoice: { type: "tool", toolName: name } };
}

/** The allowed functions. The others are not offered at all, so that the model cannot call them. */
function allowedTools(
  tools: readonly ClientTool[],
  choice: Fields,
  nameOf: (choice: Fields) => unknown,
): ToolsOfRequest {
  const { mode, tools: list } = (isObject(choice.allowed_tools) ? choice.allowed_tools : choice) as Fields;
  if (!Array.isArray(list) || list.length === 0 || list.length > 128)
    throw invalid("tool_choice.tools must be an array of 1 to 128 functions");
  const allowed = new Set(
    list.map((each, index) => namedTool(tools, isObject(each) ? nameOf(each) : null, `tool_choice.tools[${index}]`)),
  );
  const offered = tools.filter((tool) => allowed.has(tool));
  if (mode === "none") return {};
  return mode === "required" ? { ...brought(offered), toolChoice: { type: "required" } } : brought(offered);
}

const brought = (list: readonly ClientTool[]): ToolsOfRequest =>
  list.length === 0 ? {} : { clientTools: { field: "tools", list } };

function atLeastOne(tools: readonly ClientTool[]): readonly ClientTool[] {
  if (tools.length === 0) throw invalid("tool_choice must not be required without tools");
  return tools;
}

function namedTool(tools: readonly ClientTool[], name: unknown, field: string): ClientTool {
  const tool = tools.find((each) => each.name === name);
  if (tool === undefined) throw invalid(`${field} must name a function of tools`);
  return tool;
}

/** Whether a value is missing: clients send null for options that they do not set. */
export const isNothing = (value: unknown): value is null | undefined => value === null || value === undefined;
