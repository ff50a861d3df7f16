/** Token counts and what they cost: converted from the provider's form, and added up over the steps of a run. */
import type { LanguageModelV3Usage } from "@ai-sdk/provider";
import type { ModelPrices } from "../../plugin/plugin.ts";
import type { FinishReason, Usage } from "./parts.ts";

export function zeroUsage(): Usage {
  return { promptTokens: 0, completionTokens: 0, totalTokens: 0, cachedInputTokens: 0, reasoningTokens: 0 };
}

/** As replies show it: with the AI SDK's names beside ours. Nothing is stored like that. */
export function shownUsage(usage: Usage): Usage {
  const { promptTokens, completionTokens, totalTokens, cachedInputTokens, reasoningTokens, cost } = usage;
  const shown: Usage = {
    promptTokens,
    completionTokens,
    totalTokens,
    cachedInputTokens,
    reasoningTokens,
    inputTokens: promptTokens,
    outputTokens: completionTokens,
  };
  if (cost !== undefined) shown.cost = cost;
  return shown;
}

/**
 * `promptTokens` counts all input, cached or not. Counts that the provider does not give are 0, and so is what is no count: it would
 * spoil every sum that it goes into, in the metrics for good.
 */
export function toUsage(usage: LanguageModelV3Usage): Usage {
  const promptTokens = count(usage.inputTokens.total);
  const completionTokens = count(usage.outputTokens.total);
  return {
    promptTokens,
    completionTokens,
    totalTokens: promptTokens + completionTokens,
    cachedInputTokens: count(usage.inputTokens.cacheRead),
    reasoningTokens: count(usage.outputTokens.reasoning),
  };
}

const count = (value: unknown): number =>
  Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : 0;

/**
 * In US dollars. Reasoning is part of the output. Cached tokens are part of the input; where a provider leaves them out of its
 * total, only what the total is counts as not cached.
 */
export function costOf(usage: Usage, prices: ModelPrices): number {
  const { promptTokens, completionTokens, cachedInputTokens, reasoningTokens } = usage;
  const { input, output, cachedInput = input } = prices;
  const fresh = cachedInputTokens > promptTokens ? promptTokens : promptTokens - cachedInputTokens;
  const written = reasoningTokens > completionTokens ? completionTokens + reasoningTokens : completionTokens;
  return toDollars((fresh * input + cachedInputTokens * cachedInput + written * output) / 1e6);
}

/** Without the digits that are an error of binary fractions. */
const toDollars = (value: number): number => Math.round(value * 1e12) / 1e12;

/** Adds `more` to `sum` in place. The cost of both is known only when that of each is which has tokens. */
export function addUsage(sum: Usage, more: Usage): void {
  if (more.totalTokens > 0) {
    const before = sum.totalTokens === 0 ? 0 : sum.cost;
    if (before !== undefined && more.cost !== undefined) sum.cost = toDollars(before + more.cost);
    else if (sum.cost !== undefined) delete sum.cost;
  }
  sum.promptTokens += more.promptTokens;
  sum.completionTokens += more.completionTokens;
  sum.totalTokens += more.totalTokens;
  sum.cachedInputTokens += more.cachedInputTokens;
  sum.reasoningTokens += more.reasoningTokens;
}

// Why an answer that did not simply stop is not whole, for those who use it.

/** What became of an answer of which the end is missing: its tool calls may not be whole either. */
export const CUT: Partial<Record<FinishReason, string>> = {
  length: "was cut off at the limit of output tokens",
  "content-filter": "was stopped by the provider's content filter",
};

const UNFINISHED: Partial<Record<FinishReason, string>> = {
  ...CUT,
  "tool-calls": "is missing, since it reached its maxSteps and still called tools",
  error: "ended with an error of the provider",
  other: "ended for a reason that is not known",
};

/** What to say of an agent whose run ended so; null when it has finished. */
export function unfinished(agentId: string, reason: FinishReason): string | null {
  const why = UNFINISHED[reason];
  return why === undefined ? null : `agent ${JSON.stringify(agentId)} did not finish: its answer ${why}`;
}

/** The reason with which a step of a run ended: what providers say does not always go with what came. */
export function stepReason(given: FinishReason, hasCalls: boolean): FinishReason {
  if (!hasCalls) return given === "tool-calls" ? "stop" : given;
  return given === "stop" || given === "other" ? "tool-calls" : given;
}
