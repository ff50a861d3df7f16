/** Converts a provider's token counts and finish reasons to the terms of the AI SDK. */
import type { LanguageModelV3FinishReason, LanguageModelV3Usage } from "../../plugin/plugin.ts";
import type { WireUsage } from "./wire.ts";

const UNKNOWN: LanguageModelV3Usage = {
  inputTokens: { total: undefined, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: undefined, text: undefined, reasoning: undefined },
  raw: undefined,
};

export function readUsage(usage: WireUsage | null): LanguageModelV3Usage {
  if (usage === null) return UNKNOWN;
  const input = usage.prompt_tokens ?? 0;
  const output = usage.completion_tokens ?? 0;
  const cached = usage.prompt_tokens_details?.cached_tokens ?? usage.prompt_cache_hit_tokens ?? 0;
  const reasoning = usage.completion_tokens_details?.reasoning_tokens ?? 0;
  return {
    inputTokens: { total: input, noCache: input - cached, cacheRead: cached, cacheWrite: undefined },
    outputTokens: { total: output, text: Math.max(0, output - reasoning), reasoning },
    raw: usage as NonNullable<LanguageModelV3Usage["raw"]>,
  };
}

/** OpenAI's, and what other servers say in their place. */
const REASONS: Readonly<Record<string, LanguageModelV3FinishReason["unified"]>> = {
  stop: "stop",
  eos: "stop",
  eos_token: "stop",
  end_turn: "stop",
  stop_sequence: "stop",
  length: "length",
  max_tokens: "length",
  model_length: "length",
  content_filter: "content-filter",
  safety: "content-filter",
  sensitive: "content-filter",
  function_call: "tool-calls",
  tool_calls: "tool-calls",
  tool_use: "tool-calls",
};

export const readFinishReason = (raw: string): LanguageModelV3FinishReason => ({
  unified: Object.hasOwn(REASONS, raw) ? REASONS[raw]! : "other",
  raw,
});
