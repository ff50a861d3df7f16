/**
 * The options of one run. Each field comes from the request, else from the agent, else from the defaults in the schemas.
 * Only fields that are current here have an effect. Ranges are checked by the schemas of requests and of the manifest.
 */
import type { LanguageModelV3CallOptions, SharedV3ProviderOptions } from "@ai-sdk/provider";
import { defaults } from "../../../generated/defaults.ts";
import type {
  ConversationPersistenceOptions,
  GenerateOptions,
  MemoryRuntimeOptions,
  OutputOptions,
  SemanticMemoryOptions,
} from "../../../generated/types.ts";
import type { ClientSchema, PrepareSchema } from "../../client-schema/schemas.ts";
import { userIdOf } from "../../identity/principal.ts";
import { isObject } from "../../lib/is-object.ts";
import { mergeProviderOptions } from "./allowed-options.ts";
import type { RunCall } from "./caller.ts";
import { answersIn, type Bracket } from "./partial-json.ts";

/** The options about memory. `semanticMemory.enabled` is undefined unless it is set: then the memory decides. */
export interface MemorySettings {
  readonly userId: string | undefined;
  readonly conversationId: string | undefined;
  readonly contextLimit: number;
  readonly readOnly: boolean;
  readonly semanticMemory: Required<Omit<SemanticMemoryOptions, "enabled">> & { enabled: boolean | undefined };
  readonly conversationPersistence: Required<ConversationPersistenceOptions>;
  /** What the stored answer says of its run. */
  readonly messageMetadataPersistence: MemoryRuntimeOptions["messageMetadataPersistence"];
}

export interface RunSettings {
  readonly maxSteps: number;
  /** Of this and the next six: undefined when the provider is sent nothing. */
  readonly temperature: number | undefined;
  readonly maxOutputTokens: number | undefined;
  readonly topP: number | undefined;
  readonly frequencyPenalty: number | undefined;
  readonly presencePenalty: number | undefined;
  readonly seed: number | undefined;
  readonly stopSequences: string[] | undefined;
  readonly providerOptions: SharedV3ProviderOptions | undefined;
  readonly context: Record<string, unknown>;
  readonly output: OutputOptions | undefined;
  readonly memory: MemorySettings;
}

const { resumableStream: _, background: __, ...SAMPLING_DEFAULTS } = defaults.GenerateOptions;

/** The defaults that the schemas name for `options` of the generation endpoints. */
export const DEFAULT_SETTINGS: RunSettings = Object.freeze({
  ...SAMPLING_DEFAULTS,
  seed: undefined,
  stopSequences: undefined,
  providerOptions: undefined,
  context: Object.freeze({}),
  output: undefined,
  memory: Object.freeze({
    userId: undefined,
    conversationId: undefined,
    ...defaults.MemoryRuntimeOptions,
    semanticMemory: Object.freeze({ enabled: undefined, ...defaults.SemanticMemoryOptions }),
    conversationPersistence: Object.freeze(defaults.ConversationPersistenceOptions),
    messageMetadataPersistence: undefined,
  }),
});

/** Merges `options` over `defaults`. Without options the result is `defaults` itself. */
export function resolveOptions(options: GenerateOptions | undefined, defaults: RunSettings): RunSettings {
  if (options === undefined) return defaults;
  return {
    maxSteps: options.maxSteps ?? defaults.maxSteps,
    temperature: given(options.temperature, defaults.temperature),
    maxOutputTokens: given(options.maxOutputTokens, defaults.maxOutputTokens),
    topP: given(options.topP, defaults.topP),
    frequencyPenalty: given(options.frequencyPenalty, defaults.frequencyPenalty),
    presencePenalty: given(options.presencePenalty, defaults.presencePenalty),
    seed: given(options.seed, defaults.seed),
    stopSequences: given(options.stopSequences, defaults.stopSequences),
    providerOptions: mergeProviderOptions(
      defaults.providerOptions,
      options.providerOptions as SharedV3ProviderOptions | undefined,
    ),
    context: (options.context as Record<string, unknown> | undefined) ?? defaults.context,
    output: options.output ?? defaults.output,
    memory: resolveMemory(options, defaults.memory),
  };
}

/** An option of the model, where null means that the provider is sent nothing. */
const given = <T>(value: T | null | undefined, fallback: T | undefined): T | undefined =>
  value === undefined ? fallback : (value ?? undefined);

/** For each field: the one under `memory` takes precedence over its deprecated counterpart at the top. */
function resolveMemory(options: GenerateOptions, defaults: MemorySettings): MemorySettings {
  const memory = options.memory;
  const memoryOptions = memory?.options;
  return {
    userId: memory?.userId ?? options.userId ?? defaults.userId,
    conversationId: memory?.conversationId ?? options.conversationId ?? defaults.conversationId,
    contextLimit: memoryOptions?.contextLimit ?? options.contextLimit ?? defaults.contextLimit,
    readOnly: memoryOptions?.readOnly ?? defaults.readOnly,
    semanticMemory: layered(memoryOptions?.semanticMemory, options.semanticMemory, defaults.semanticMemory),
    conversationPersistence: layered(
      memoryOptions?.conversationPersistence,
      options.conversationPersistence,
      defaults.conversationPersistence,
    ),
    messageMetadataPersistence: memoryOptions?.messageMetadataPersistence ?? defaults.messageMetadataPersistence,
  };
}

/** For each field of `defaults`: the current value, else the deprecated one. */
function layered<T extends object>(
  current: Partial<T> | undefined,
  deprecated: Partial<T> | undefined,
  defaults: T,
): T {
  if (current === undefined && deprecated === undefined) return defaults;
  const merged = { ...defaults };
  for (const key in defaults) merged[key] = current?.[key] ?? deprecated?.[key] ?? defaults[key];
  return merged;
}

// What form a result has, plain text or a value of a schema, and how it is read from what the model wrote.

/** Of a protocol: the answer must be JSON, valid against the schema if there is one. */
export interface JsonAnswer {
  readonly schema: object | undefined;
  /** Where that stands in the request. */
  readonly field: string;
}

/** The agent whose output it is. */
interface OutputAgent {
  readonly prepareSchema: PrepareSchema;
  readonly defaults: RunSettings;
}

export interface OutputSpec {
  /** What the provider is asked for. */
  readonly format: LanguageModelV3CallOptions["responseFormat"];
  /** The schema as text, for models that ignore `format`; empty when there is none. */
  readonly schemaText: string;
  /** What the JSON of the value begins with, if that is known. */
  readonly bracket?: Bracket | undefined;
  /** Parses a finished answer: its value, or what is wrong with it. */
  read(text: string): { value: unknown } | { problem: string };
}

const TEXT: OutputSpec = Object.freeze({
  format: undefined,
  schemaText: "",
  read: (text: string) => ({ value: text }),
});

/** A value that is valid against the schema, or any object without one. */
export function objectOutput(schema: ClientSchema | undefined): OutputSpec {
  const bracket = schema === undefined ? "{" : bracketOf(schema.schema);
  return {
    format: schema === undefined ? { type: "json" } : { type: "json", schema: schema.schema },
    schemaText: schema === undefined ? "" : JSON.stringify(schema.schema),
    bracket,
    read(text) {
      let first: string | null = null;
      for (const value of answersIn(text, bracket)) {
        const problem = schema === undefined ? objectProblem(value) : schema.problems(value);
        if (problem === null) return { value };
        first ??= problem;
      }
      return { problem: first ?? "it is not JSON" };
    },
  };
}

/** The result that a protocol asks for; undefined: text. */
export const jsonOutput = (
  { prepareSchema }: OutputAgent,
  json: JsonAnswer | undefined,
  call: RunCall,
): OutputSpec | undefined =>
  json && objectOutput(json.schema && prepareSchema(json.schema, json.field, schemaRateKey(call)));

const BRACKETS: ReadonlyMap<unknown, Bracket> = new Map([
  ["object", "{"],
  ["array", "["],
]);

const bracketOf = (schema: { type?: unknown }): Bracket | undefined => BRACKETS.get(schema.type);

function objectProblem(value: unknown): string | null {
  return isObject(value) ? null : "result must be object";
}

/** `options.output` of a request. */
export function resolveOutput(
  output: OutputOptions | undefined,
  { prepareSchema, defaults }: OutputAgent,
  call: RunCall,
): OutputSpec | null {
  if (output === undefined) return null;
  if (output.type === "text") return TEXT;
  // The agent's own schema does not count against any client.
  const rateKey = output === defaults.output ? undefined : schemaRateKey(call);
  return objectOutput(
    output.schema === undefined ? undefined : prepareSchema(output.schema, "options.output.schema", rateKey),
  );
}

/** Whose rate limit a new schema counts against; undefined for calls that the service makes itself. */
export function schemaRateKey({ user, client }: RunCall): string | undefined {
  const id = userIdOf(user);
  if (id !== null) return `user ${id}`;
  return client === undefined ? undefined : `address ${client.address}`;
}
