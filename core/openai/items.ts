/** The response resource, and its items: messages and calls of either side. */

import type { SharedV3ProviderMetadata } from "@ai-sdk/provider";
import type { CreateResponseRequest } from "../../generated/types.ts";
import type { FinishReason, Usage } from "../agents/run/parts.ts";
import type { ClientTool } from "../agents/run/tool-set.ts";
import type { Fields } from "../lib/is-object.ts";
import { type InputMessage, type InputPart, placed } from "./errors.ts";

// The response resource: every key is present, with null where it does not apply, because clients check that.

type ResponseStatus = "in_progress" | "completed" | "incomplete" | "failed" | "cancelled";

/** The fields of a response that describe its end. */
export interface ResponseEnd {
  readonly status: ResponseStatus;
  readonly completed_at: number | null;
  readonly incomplete_details: { readonly reason: string } | null;
  readonly error: { readonly code: string; readonly message: string } | null;
}

export interface ResponseResource extends ResponseEnd {
  readonly id: string;
  readonly object: "response";
  /** Seconds since 1970, like all times here. */
  readonly created_at: number;
  readonly model: string;
  readonly background: boolean;
  readonly store: boolean;
  readonly output: readonly OutputItem[];
  readonly usage: object | null;
  readonly [key: string]: unknown;
}

interface Beginning {
  readonly id: string;
  readonly createdAt: number;
  readonly body: CreateResponseRequest;
  readonly tools: readonly ClientTool[];
  readonly store: boolean;
}

/** What is repeated of the request, and what stands for it where the request does not say it. */
const ECHOED = {
  previous_response_id: null,
  instructions: null,
  tool_choice: "auto",
  truncation: "disabled",
  parallel_tool_calls: true,
  temperature: 1,
  top_p: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
  max_output_tokens: null,
  max_tool_calls: null,
  metadata: {},
  safety_identifier: null,
  prompt_cache_key: null,
};

/** The resource of a response at its start, with the settings of the request. */
export function beginResource({ id, createdAt, body, tools, store }: Beginning): ResponseResource {
  return {
    id,
    object: "response",
    created_at: createdAt,
    ...IN_PROGRESS,
    ...Object.fromEntries(
      Object.entries(ECHOED).map(([key, absent]) => [key, (body as object as Fields)[key] ?? absent]),
    ),
    model: body.model,
    output: [],
    tools: tools.map(({ name, description, parameters, strict = null }) => ({
      type: "function",
      name,
      description: description || null,
      parameters,
      strict,
    })),
    text: { format: body.text?.format ?? { type: "text" }, verbosity: body.text?.verbosity ?? "medium" },
    top_logprobs: 0,
    reasoning: { effort: body.reasoning?.effort ?? null, summary: body.reasoning?.summary ?? null },
    usage: null,
    store,
    background: body.background ?? false,
    service_tier: "default",
  };
}

/** Why an answer is incomplete. A run that may not continue with its own tools counts as cut off too. */
const INCOMPLETE: Partial<Record<FinishReason, string>> = {
  length: "max_output_tokens",
  "content-filter": "content_filter",
  "tool-calls": "max_steps",
};

/** @param hasCalls whether the client has to run something: then the response counts as complete */
export function endOf(reason: FinishReason, hasCalls: boolean, now: number): ResponseEnd {
  const missing = hasCalls ? undefined : INCOMPLETE[reason];
  return missing === undefined
    ? standing("completed", { completed_at: now })
    : standing("incomplete", { incomplete_details: { reason: missing } });
}

const standing = (status: ResponseStatus, more?: Partial<ResponseEnd>): ResponseEnd => ({
  status,
  completed_at: null,
  incomplete_details: null,
  error: null,
  ...more,
});

export const failedEnd = (code: string, message: string) => standing("failed", { error: { code, message } });

export const IN_PROGRESS = standing("in_progress");
export const CANCELLED = standing("cancelled");

export const responseUsage = (usage: Usage) => ({
  input_tokens: usage.promptTokens,
  input_tokens_details: { cached_tokens: usage.cachedInputTokens },
  output_tokens: usage.completionTokens,
  output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
  total_tokens: usage.totalTokens,
});

export interface EarlierItems {
  readonly items: readonly ConversationItem[];
  /** Ids of the responses, the oldest first. */
  readonly chain: readonly string[];
  /** Size in characters. */
  readonly size: number;
}

type ItemStatus = "in_progress" | "completed" | "incomplete";

interface Common {
  readonly id: string;
  readonly status: ItemStatus;
  /** The metadata that the provider of the model expects back with the text. */
  readonly provider_metadata?: SharedV3ProviderMetadata;
}

interface TextContent {
  readonly type: "output_text";
  readonly text: string;
  readonly annotations: readonly [];
  readonly logprobs: readonly [];
}

export type MessageItem = Common & {
  readonly type: "message";
  readonly role: "user" | "system" | "developer" | "assistant";
  /** For the message of a request: as its client wrote it. */
  readonly content: readonly (TextContent | Readonly<Record<string, unknown>>)[];
};

interface Called extends Common {
  readonly call_id: string;
  readonly name: string;
  readonly arguments: string;
}

export type CallItem = Called & { readonly type: "function_call" };

export type CallOutputItem = Common & {
  readonly type: "function_call_output";
  readonly call_id: string;
  readonly output: unknown;
};

export type ReasoningItem = Common & {
  readonly type: "reasoning";
  readonly summary: readonly { readonly type: "summary_text"; readonly text: string }[];
  /** Opaque to clients: represents the reasoning at the provider. */
  readonly encrypted_content?: string;
};

/** A call that the agent has made itself, with its result. */
export type OwnCallItem = Called & {
  readonly type: "penstock:tool_call";
  readonly output: unknown;
  readonly error: string | null;
};

/** The summary of earlier items, opaque to clients. */
export type CompactionItem = Common & {
  readonly type: "compaction";
  readonly encrypted_content: string;
};

export type OutputItem = MessageItem | CallItem | ReasoningItem | OwnCallItem;
export type ConversationItem = OutputItem | CallOutputItem | CompactionItem;

const PREFIXES: Readonly<Record<ConversationItem["type"], string>> = {
  message: "msg",
  function_call: "fc",
  function_call_output: "fco",
  reasoning: "rs",
  "penstock:tool_call": "ptc",
  compaction: "cmp",
};

/** Makes the id of an item, which contains the id of its response. @param place in the output or input of the response */
export const itemId = (type: ConversationItem["type"], response: string, place: string): string =>
  `${PREFIXES[type]}_${response.slice("resp_".length)}_${place}`;

const ITEM_ID = /^[a-z]+_([0-9a-f]{32})_i?\d+$/;
/** The id of the response that contains the item; undefined when the id has another format. */
export function responseOfItem(id: string): string | undefined {
  const response = ITEM_ID.exec(id)?.[1];
  return response === undefined ? undefined : `resp_${response}`;
}

/** An item with its parts in the form that agents read. */
export interface ReadItem {
  readonly item: ConversationItem;
  /** Its place in the request. */
  readonly path: string;
  readonly parts: readonly InputPart[];
}

/**
 * The messages of a conversation, from its items. Consecutive items of the assistant become one message, and results of its calls come
 * after it.
 */
export function messagesOf(items: readonly ReadItem[]): InputMessage[] {
  const messages: InputMessage[] = [];
  let said: InputPart[] = [];
  let results: InputPart[] = [];
  const flush = () => {
    if (said.length > 0) messages.push({ role: "assistant", content: said });
    if (results.length > 0) messages.push({ role: "tool", content: results });
    said = [];
    results = [];
  };
  for (const { item, path, parts } of items) {
    if (item.type === "compaction" || (item.type === "message" && item.role !== "assistant")) {
      flush();
      const role = item.type === "message" && item.role === "user" ? "user" : "system";
      messages.push(placed({ role, content: parts }, path));
    } else if (item.type === "function_call_output") results.push(...parts);
    else {
      // After results the assistant starts a new message; parallel calls belong to the same step.
      const isCall = item.type === "function_call" || item.type === "penstock:tool_call";
      if (results.length > 0 && !isCall) flush();
      for (const part of parts) (part.type === "tool-result" ? results : said).push(part);
    }
  }
  flush();
  return messages;
}
