/** Token counts: converted from the provider's form, and added up over the steps of a run. */
import type { LanguageModelV3Usage } from "@ai-sdk/provider";
import type { Usage } from "./parts.ts";

export function zeroUsage(): Usage {
  return { promptTokens: 0, completionTokens: 0, totalTokens: 0, cachedInputTokens: 0, reasoningTokens: 0 };
}

/** `promptTokens` counts all input, cached or not. Counts that the provider does not give are 0. */
export function toUsage(usage: LanguageModelV3Usage): Usage {
  const promptTokens = usage.inputTokens.total ?? 0;
  const completionTokens = usage.outputTokens.total ?? 0;
  return {
    promptTokens,
    completionTokens,
    totalTokens: promptTokens + completionTokens,
    cachedInputTokens: usage.inputTokens.cacheRead ?? 0,
    reasoningTokens: usage.outputTokens.reasoning ?? 0,
  };
}

/** Adds `more` to `sum` in place. */
export function addUsage(sum: Usage, more: Usage): void {
  sum.promptTokens += more.promptTokens;
  sum.completionTokens += more.completionTokens;
  sum.totalTokens += more.totalTokens;
  sum.cachedInputTokens += more.cachedInputTokens;
  sum.reasoningTokens += more.reasoningTokens;
}
