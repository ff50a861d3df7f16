/** What a provider says of a tool or a message that it refuses, and the plain form in which such a tool is sent instead. */
import type { LanguageModelV3CallOptions, LanguageModelV3FunctionTool } from "@ai-sdk/provider";
import { isObject } from "../lib/is-object.ts";
import { causesText } from "./causes-text.ts";
import { classifyFailure } from "./failure.ts";

/** What of a request its provider may refuse. */
export type ModelRequest = Pick<LanguageModelV3CallOptions, "prompt" | "tools">;
type Tools = NonNullable<ModelRequest["tools"]>;

interface Refusal {
  readonly error: unknown;
  readonly sent: ModelRequest;
  /** Names of tools that are sent in a plain form already. */
  readonly known: ReadonlySet<string>;
}

/** Of the error that is searched. */
const MAX_TEXT = 16 * 1024;
const MAX_DEPTH = 16;
const MAX_ASKED_FOR = 3;

/** `tools[3].function`, `tools.3.custom`, `function_declarations[3]`. The last number counts: Gemini has all functions in one tool. */
const TOOL = /\b(?:tools|function_?declarations)(?:\[|\.)(\d{1,4})\b/gi;
const MESSAGE = /\b(?:messages|contents|input)(?:\[\d{1,5}\]|\.\d{1,5})(?:[.[][\w\]]{1,24}){0,4}/;

function refusalText(error: unknown): string | null {
  if (classifyFailure(error).reason !== "refused the request") return null;
  const { responseBody } = isObject(error) ? error : {};
  const body = typeof responseBody === "string" ? responseBody : "";
  return `${causesText(error).slice(0, MAX_TEXT)}\n${body.slice(0, MAX_TEXT)}`;
}

/** The tools that the provider refuses: after some refusals, which name one each, the others are not asked for one by one. */
export function refusedTools({ error, sent: { tools = [] }, known }: Refusal): readonly string[] {
  const tool = refusedTool(error, tools);
  if (tool === null || known.has(tool)) return [];
  const asked = tools.filter(({ name }) => known.has(name)).length;
  return asked < MAX_ASKED_FOR ? [tool] : tools.map(({ name }) => name);
}

function refusedTool(error: unknown, tools: Tools): string | null {
  const text = refusalText(error);
  if (text === null || tools.length === 0) return null;
  const index = [...text.matchAll(TOOL)].at(-1)?.[1];
  const numbered = index === undefined ? undefined : tools[Number(index)];
  if (!/function|tool|schema/i.test(text)) return null;
  const words = new Set(text.split(/[^\w-]+/));
  const named = tools.find(({ name }) => words.has(name));
  return (named ?? numbered)?.name ?? null;
}

/** What the provider refuses, for the error: nothing of its own words, which may quote others. */
export function refusedPart(error: unknown, tools: Tools = []): string | null {
  const tool = refusedTool(error, tools);
  if (tool !== null) return `tool ${JSON.stringify(tool)}`;
  return MESSAGE.exec(refusalText(error) ?? "")?.[0] ?? null;
}

/** The request with the tools of these names described by schemas that say only which values there are. */
export function withPlain(request: ModelRequest, names: ReadonlySet<string>): ModelRequest {
  if (names.size === 0 || !request.tools?.some(({ name }) => names.has(name))) return request;
  const tools = request.tools.map((tool) =>
    names.has(tool.name) && tool.type === "function"
      ? { ...tool, inputSchema: { ...plain(tool.inputSchema, 0), type: "object" as const } }
      : tool,
  );
  return { ...request, tools };
}

function plain(schema: unknown, depth: number): LanguageModelV3FunctionTool["inputSchema"] {
  if (!isObject(schema) || depth > MAX_DEPTH) return {};
  const { type, description, enum: values, required, properties, items } = schema;
  const only = Array.isArray(type) ? type.find((each) => each !== "null") : type;
  const kept: Record<string, unknown> = { type: only, description: description || undefined, enum: values };
  if (isObject(properties)) {
    const entries = Object.entries(properties);
    kept.properties = Object.fromEntries(entries.map(([name, child]) => [name, plain(child, depth + 1)]));
    if (Array.isArray(required)) kept.required = required.filter((name) => Object.hasOwn(properties, name));
  } else if (only === "object") kept.properties = {};
  if (isObject(items)) kept.items = plain(items, depth + 1);
  return JSON.parse(JSON.stringify(kept));
}
