/** Items of a response: messages and calls of either side. */
import type { SharedV3ProviderMetadata } from "@ai-sdk/provider";
import { type InputMessage, type InputPart, placed } from "./places.ts";

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
