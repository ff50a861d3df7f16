/**
 * The options of one run: the request's, else the agent's own, else the table of the contract, for each field alone. Only
 * fields that are named here reach the engine. Ranges are checked by the schemas of the request and of the manifest.
 */
import type { SharedV3ProviderOptions } from "@ai-sdk/provider";
import { defaults } from "../../../generated/defaults.ts";
import type {
  ConversationPersistenceOptions,
  GenerateOptions,
  OutputOptions,
  SemanticMemoryOptions,
} from "../../../generated/types.ts";

/** The memory rows of the options table; `semanticMemory.enabled` stays open until a memory decides. */
export interface MemorySettings {
  readonly userId: string | undefined;
  readonly conversationId: string | undefined;
  readonly contextLimit: number;
  readonly readOnly: boolean;
  readonly semanticMemory: Required<Omit<SemanticMemoryOptions, "enabled">> & { enabled: boolean | undefined };
  readonly conversationPersistence: Required<ConversationPersistenceOptions>;
}

export interface Settings {
  readonly maxSteps: number;
  readonly temperature: number;
  readonly maxOutputTokens: number;
  readonly topP: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  readonly seed: number | undefined;
  readonly stopSequences: string[] | undefined;
  readonly providerOptions: SharedV3ProviderOptions | undefined;
  readonly context: Record<string, unknown>;
  readonly output: OutputOptions | undefined;
  readonly memory: MemorySettings;
}

const { resumableStream: _, ...NUMBERS } = defaults.GenerateOptions;

/** The defaults of the contract (Limits; `options` of the generation endpoints), as the schemas name them. */
export const TABLE_DEFAULTS: Settings = Object.freeze({
  ...NUMBERS,
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
  }),
});

/** `options` over `defaults`. Without options it is `defaults` itself. */
export function resolveOptions(options: GenerateOptions | undefined, defaults: Settings): Settings {
  if (options === undefined) return defaults;
  return {
    maxSteps: options.maxSteps ?? defaults.maxSteps,
    temperature: options.temperature ?? defaults.temperature,
    maxOutputTokens: options.maxOutputTokens ?? defaults.maxOutputTokens,
    topP: options.topP ?? defaults.topP,
    frequencyPenalty: options.frequencyPenalty ?? defaults.frequencyPenalty,
    presencePenalty: options.presencePenalty ?? defaults.presencePenalty,
    seed: options.seed ?? defaults.seed,
    stopSequences: options.stopSequences ?? defaults.stopSequences,
    providerOptions: (options.providerOptions as SharedV3ProviderOptions | undefined) ?? defaults.providerOptions,
    context: (options.context as Record<string, unknown> | undefined) ?? defaults.context,
    output: options.output ?? defaults.output,
    memory: settleMemory(options, defaults.memory),
  };
}

/** A field under `memory` beats its deprecated twin at the top, each alone. */
function settleMemory(options: GenerateOptions, defaults: MemorySettings): MemorySettings {
  const envelope = options.memory;
  const inner = envelope?.options;
  return {
    userId: envelope?.userId ?? options.userId ?? defaults.userId,
    conversationId: envelope?.conversationId ?? options.conversationId ?? defaults.conversationId,
    contextLimit: inner?.contextLimit ?? options.contextLimit ?? defaults.contextLimit,
    readOnly: inner?.readOnly ?? defaults.readOnly,
    semanticMemory: settleSemantic(inner?.semanticMemory, options.semanticMemory, defaults.semanticMemory),
    conversationPersistence: settlePersistence(
      inner?.conversationPersistence,
      options.conversationPersistence,
      defaults.conversationPersistence,
    ),
  };
}

function settleSemantic(
  named: SemanticMemoryOptions | undefined,
  old: SemanticMemoryOptions | undefined,
  defaults: MemorySettings["semanticMemory"],
): MemorySettings["semanticMemory"] {
  if (named === undefined && old === undefined) return defaults;
  return {
    enabled: named?.enabled ?? old?.enabled ?? defaults.enabled,
    semanticLimit: named?.semanticLimit ?? old?.semanticLimit ?? defaults.semanticLimit,
    semanticThreshold: named?.semanticThreshold ?? old?.semanticThreshold ?? defaults.semanticThreshold,
    mergeStrategy: named?.mergeStrategy ?? old?.mergeStrategy ?? defaults.mergeStrategy,
  };
}

function settlePersistence(
  named: ConversationPersistenceOptions | undefined,
  old: ConversationPersistenceOptions | undefined,
  defaults: MemorySettings["conversationPersistence"],
): MemorySettings["conversationPersistence"] {
  if (named === undefined && old === undefined) return defaults;
  return {
    mode: named?.mode ?? old?.mode ?? defaults.mode,
    debounceMs: named?.debounceMs ?? old?.debounceMs ?? defaults.debounceMs,
    flushOnToolResult: named?.flushOnToolResult ?? old?.flushOnToolResult ?? defaults.flushOnToolResult,
  };
}
