/**
 * How an answer is held to a JSON Schema. By the provider, if it can; whatever it does not enforce stands in the prompt. What a
 * provider takes shows with the first call.
 */
import type { LanguageModelV3CallOptions, ModelSettings } from "../../plugin/plugin.ts";
import type { Complaint } from "./parameters.ts";
import type { Body } from "./request-body.ts";
import { relaxSchema } from "./strict.ts";

export type OutputMode = Exclude<ModelSettings["structuredOutput"], "auto">;
type Json = Extract<LanguageModelV3CallOptions["responseFormat"], { type: "json" }>;

const MODES: readonly OutputMode[] = ["json_schema", "json_object", "prompt"];
const DEFAULT_NAME = "response";

/** The way for one call: the one that is configured, else the best that the provider has not refused. */
export function chooseMode(
  configured: ModelSettings["structuredOutput"],
  { schema }: Json,
  refused: ReadonlySet<OutputMode>,
): OutputMode {
  if (configured === "auto") return MODES.find((mode) => allows(mode, schema) && !refused.has(mode)) ?? "prompt";
  return allows(configured, schema) ? configured : "json_object";
}

const allows = (mode: OutputMode, schema: unknown): boolean => mode !== "json_schema" || schema !== undefined;

/** Changes the body so that it asks for JSON. */
export function askForJson(body: Body, { schema, name, description }: Json, mode: OutputMode, strict: boolean): void {
  if (mode === "json_schema") {
    const json_schema = { schema, strict, name: name ?? DEFAULT_NAME, description };
    body.response_format = relaxSchema({ response_format: { type: mode, json_schema } }).response_format;
    return;
  }
  body.response_format = mode === "json_object" ? { type: mode } : undefined;
  addToSystemMessage(body, instruction(schema));
}

/** Some servers refuse `json_object` unless the prompt has the word JSON in it. */
function instruction(schema: unknown): string {
  const only = "Answer with JSON alone, without any other text around it.";
  return schema === undefined
    ? `${only} The answer must be one JSON object.`
    : `${only} The answer must conform to this JSON Schema:\n${JSON.stringify(schema)}`;
}

/** Many models take only one system message, and only as the first. */
function addToSystemMessage(body: Body, text: string): void {
  const [first, ...rest] = body.messages;
  body.messages =
    first?.role === "system" && typeof first.content === "string"
      ? [{ ...first, content: `${first.content}\n\n${text}` }, ...rest]
      : [{ role: "system", content: text }, ...body.messages];
}

/** The mode that the provider refuses, or null. */
export function refusedMode({ code, param, words }: Complaint, body: Body): OutputMode | null {
  const format = body.response_format as { type: OutputMode } | undefined;
  if (format === undefined) return null;
  return /response.?format|json.?schema|json.?object|json.?mode|structured.?output|guided/i.test(
    `${code} ${param} ${words}`,
  )
    ? format.type
    : null;
}

/** Whether the provider minds only that there are tools as well. */
export const isAboutTools = ({ words }: Complaint, { tools }: Body): boolean =>
  tools !== undefined && /\b(?:tools?|functions?)\b/i.test(words);

/** Whether the provider minds only this one schema. */
export const isAboutSchema = ({ code, words }: Complaint): boolean => /invalid.{0,20}schema/i.test(`${code} ${words}`);
