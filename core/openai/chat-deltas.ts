/** Chat completions: the output of a run, as deltas of one message. */
import type { SharedV3ProviderMetadata } from "@ai-sdk/provider";
import type { FinishReason, Usage } from "../agents/run/parts.ts";
import { isObject } from "../lib/is-object.ts";
import { CLAUDE } from "./chat-input.ts";
import type { Said } from "./run-parts.ts";

interface CallDelta {
  readonly index: number;
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: string };
  readonly extra_content?: object;
}

/** What the provider wants back with the message. Clients that keep the message as it is send it again. */
interface Wanted {
  readonly reasoning_details?: readonly unknown[];
  readonly extra_content?: object;
}

export type ChatDelta =
  | { readonly content: string }
  | { readonly reasoning_content: string }
  | (Wanted & { readonly tool_calls?: readonly [CallDelta] });

type ChatFinish = "stop" | "length" | "tool_calls" | "content_filter";

/** Separates the texts of several steps, which are one text for the client. */
const BETWEEN_TEXTS = "\n\n";

export class ChatDeltas {
  #hasText = false;
  #calls = 0;
  /** Of the block of reasoning that is being written. */
  #thought = "";
  /** Thoughts that the provider wants back with the next call. At once, as some clients keep the last ones that came. */
  #signed: readonly object[] = [];

  /** Null for output that this protocol cannot express. */
  of(said: Said): ChatDelta | null {
    switch (said.type) {
      case "text-start":
        return this.#hasText ? { content: BETWEEN_TEXTS } : null;
      case "text":
        this.#hasText = true;
        return { content: said.delta };
      case "reasoning-start":
        this.#thought = "";
        return null;
      case "reasoning":
        this.#thought += said.delta;
        return { reasoning_content: said.delta };
      case "call": {
        const { toolCallId: id, toolName: name, input, providerMetadata } = said.call;
        const { message, extras } = wantedBack(providerMetadata);
        const details = [...this.#signed, ...(message?.reasoning_details ?? [])];
        this.#signed = [];
        const called = { type: "function", function: { name, arguments: JSON.stringify(input) }, ...extras } as const;
        const wanted = details.length === 0 ? message : { ...message, reasoning_details: details };
        return { ...wanted, tool_calls: [{ index: this.#calls++, id, ...called }] };
      }
      case "reasoning-end":
        this.#signed = [...this.#signed, ...signedThoughts(said.metadata, this.#thought)];
        return wantedBack(said.metadata).message ?? null;
      case "text-end":
        return wantedBack(said.metadata).message ?? null;
      default:
        return null;
    }
  }

  /** The finish reason. A run that may not continue with its own tools counts as cut off. */
  finish(reason: FinishReason): ChatFinish {
    if (this.#calls > 0) return "tool_calls";
    if (reason === "content-filter") return "content_filter";
    return reason === "length" || reason === "tool-calls" ? "length" : "stop";
  }
}

export const chatUsage = (usage: Usage) => ({
  prompt_tokens: usage.promptTokens,
  completion_tokens: usage.completionTokens,
  total_tokens: usage.totalTokens,
  prompt_tokens_details: { cached_tokens: usage.cachedInputTokens },
  completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
});

/** The fields of the message and of a call, from the metadata of one part. */
function wantedBack(metadata: SharedV3ProviderMetadata = {}) {
  let message: Wanted | undefined;
  let extras: { readonly extra_content: object } | null = null;
  for (const { message: given, extra_content, thoughtSignature } of Object.values(metadata)) {
    if (isObject(extra_content)) extras = { extra_content };
    else if (thoughtSignature) extras = { extra_content: { google: { thought_signature: thoughtSignature } } };
    if (!isObject(given)) continue;
    const { reasoning_details: details, extra_content: own } = given;
    if (Array.isArray(details)) message = { ...message, reasoning_details: details };
    if (isObject(own)) message = { ...message, extra_content: own };
  }
  return { message, extras };
}

/** What Claude has signed, in the form in which OpenRouter hands it on. */
const signedThoughts = (metadata: SharedV3ProviderMetadata = {}, text: string): object[] =>
  Object.values(metadata).flatMap(({ signature, redactedData: data }): object[] => {
    if (typeof signature === "string") return [{ type: "reasoning.text", text, signature, format: CLAUDE }];
    return typeof data === "string" ? [{ type: "reasoning.encrypted", data, format: CLAUDE }] : [];
  });

/** Joins all deltas to one message. */
export function chatMessage(deltas: readonly ChatDelta[]) {
  let content = "";
  let reasoning = "";
  const calls: Omit<CallDelta, "index">[] = [];
  let wanted: Wanted = {};
  for (const delta of deltas) {
    if ("content" in delta) content += delta.content;
    else if ("reasoning_content" in delta) reasoning += delta.reasoning_content;
    else {
      const { tool_calls: called = [], ...more } = delta;
      const details = [...(wanted.reasoning_details ?? []), ...(more.reasoning_details ?? [])];
      wanted = { ...wanted, ...more, ...(details.length > 0 && { reasoning_details: details }) };
      for (const { index: _, ...call } of called) calls.push(call);
    }
  }
  return {
    role: "assistant" as const,
    content: content === "" && calls.length > 0 ? null : content,
    refusal: null,
    ...(reasoning !== "" && { reasoning_content: reasoning }),
    ...wanted,
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}
