/** Converts the options of a call to the body of the request. */
import { InvalidArgumentError } from "@ai-sdk/provider";
import type { LanguageModelV3CallOptions } from "../../plugin/plugin.ts";
import type { ThoughtName } from "./carried.ts";
import { toMessages } from "./messages.ts";
import { canBeStrict } from "./strict.ts";

export type Body = Record<string, unknown> & { messages: Record<string, unknown>[] };

type Warning = { type: "unsupported"; feature: string };

/** The settings that are the same for every call of a model. */
export interface ModelForm {
  readonly modelId: string;
  /** Keys of `providerOptions`, of which the last takes precedence: the provider's name, and that in camel case. */
  readonly optionKeys: readonly string[];
  readonly includeUsage: boolean;
  readonly learned: { readonly thoughts: ThoughtName };
}

/** The options in `providerOptions` that are renamed for the request, with their types. */
const NAMED_OPTIONS: Readonly<Record<string, "string" | "boolean">> = {
  user: "string",
  reasoningEffort: "string",
  textVerbosity: "string",
  strictJsonSchema: "boolean",
};
const SHARED_KEYS = ["openai-compatible", "openaiCompatible"];
const STREAM_OPTIONS = { include_usage: true };

interface NamedOptions {
  user?: string;
  reasoningEffort?: string;
  textVerbosity?: string;
  strictJsonSchema?: boolean;
}

/** The key under which the request has its options, which is also used for the metadata of the answer. */
export function metadataKeyOf({ optionKeys }: ModelForm, { providerOptions }: LanguageModelV3CallOptions): string {
  return optionKeys.findLast((key) => providerOptions?.[key] !== undefined) ?? optionKeys[0]!;
}

function namedOptions({ optionKeys }: ModelForm, { providerOptions }: LanguageModelV3CallOptions): NamedOptions {
  const named: Record<string, unknown> = {};
  if (providerOptions === undefined) return named;
  for (const key of [...SHARED_KEYS, ...optionKeys]) {
    const given = providerOptions[key];
    if (given === undefined) continue;
    for (const [name, type] of Object.entries(NAMED_OPTIONS)) {
      const value = given[name];
      if (value === undefined) continue;
      if (typeof value !== type)
        throw new InvalidArgumentError({ argument: "providerOptions", message: `${key}.${name} must be a ${type}` });
      named[name] = value;
    }
  }
  return named;
}

export function toBody(form: ModelForm, options: LanguageModelV3CallOptions): Body {
  const named = namedOptions(form, options);
  const tools = options.tools === undefined || options.tools.length === 0 ? undefined : options.tools;
  return {
    user: named.user,
    max_tokens: options.maxOutputTokens ?? undefined,
    temperature: options.temperature ?? undefined,
    top_p: options.topP ?? undefined,
    frequency_penalty: options.frequencyPenalty ?? undefined,
    presence_penalty: options.presencePenalty ?? undefined,
    stop: options.stopSequences ?? undefined,
    seed: options.seed ?? undefined,
    ...passedThrough(form, options),
    reasoning_effort: named.reasoningEffort,
    verbosity: named.textVerbosity,
    // After the client's own options, which must not override these.
    model: form.modelId,
    messages: toMessages(options.prompt, [...SHARED_KEYS, ...form.optionKeys], form.learned.thoughts),
    ...toResponseFormat(options.responseFormat, named.strictJsonSchema ?? true),
    tools: tools && toTools(tools),
    tool_choice: tools && toToolChoice(options.toolChoice),
    stream: true,
    stream_options: form.includeUsage ? STREAM_OPTIONS : undefined,
  };
}

/** Warnings about options that cannot be sent. */
export function warningsOf({ topK, tools = [] }: LanguageModelV3CallOptions): Warning[] {
  const features = tools.flatMap((tool) => (tool.type === "provider" ? [`provider-defined tool ${tool.id}`] : []));
  if (topK !== undefined && topK !== null) features.unshift("topK");
  return features.map((feature) => ({ type: "unsupported", feature }));
}

/** Options that only the provider knows. */
function passedThrough({ optionKeys }: ModelForm, { providerOptions }: LanguageModelV3CallOptions): object | undefined {
  if (providerOptions === undefined) return undefined;
  const given = Object.entries(Object.assign({}, ...optionKeys.map((key) => providerOptions[key])));
  return Object.fromEntries(given.filter(([name]) => !Object.hasOwn(NAMED_OPTIONS, name)));
}

function toTools(tools: NonNullable<LanguageModelV3CallOptions["tools"]>): object[] {
  return tools.flatMap((tool) => {
    if (tool.type !== "function") return [];
    const { name, description, inputSchema: parameters, strict } = tool;
    return [{ type: "function", function: { name, description, parameters, strict } }];
  });
}

function toResponseFormat(format: LanguageModelV3CallOptions["responseFormat"], strict: boolean): object | undefined {
  if (format?.type !== "json") return undefined;
  const { schema, name = "response", description } = format;
  if (schema === undefined) return { response_format: { type: "json_object" } };
  const json_schema = { schema, strict: strict && canBeStrict(schema), name, description };
  return { response_format: { type: "json_schema", json_schema } };
}

function toToolChoice(choice: LanguageModelV3CallOptions["toolChoice"]): unknown {
  return choice?.type === "tool" ? { type: "function", function: { name: choice.toolName } } : choice?.type;
}
