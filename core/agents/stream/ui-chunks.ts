/**
 * `POST /agents/:id/chat`: sends a run in the UI message stream protocol. Clients reject chunks with unknown keys, so that each
 * chunk is built from the fields that all versions in use accept.
 */
import type { UIMessageChunk } from "../../../generated/types.ts";
import type { EventSink } from "../../lib/event-sink.ts";
import type { AgentPart } from "../run/parts.ts";
import { EventPartSink } from "./event-part-sink.ts";
import { DeltaSerializer } from "./raw.ts";

type PartOf<T extends AgentPart["type"]> = Extract<AgentPart, { type: T }>;
/** `input` and `output` of a chunk are any JSON. */
type Chunk = { [K in UIMessageChunk["type"]]: Loosened<Extract<UIMessageChunk, { type: K }>> }[UIMessageChunk["type"]];
type Loosened<C> = { [K in keyof C]: K extends "input" | "output" ? unknown : C[K] };

const byProvider = (part: { providerExecuted?: true }) =>
  part.providerExecuted === true ? ({ providerExecuted: true } as const) : undefined;

/** The chunk for each type of part; null where the protocol has none. `UiSink` adds the id of the message to `start`. */
const CHUNKS: { readonly [T in AgentPart["type"]]: (part: PartOf<T>) => Chunk | null } = {
  start: () => ({ type: "start" }),
  "start-step": () => ({ type: "start-step" }),
  "text-start": ({ type, id }) => ({ type, id }),
  "text-delta": ({ type, id, delta }) => ({ type, id, delta }),
  "text-end": ({ type, id }) => ({ type, id }),
  "reasoning-start": ({ type, id }) => ({ type, id }),
  "reasoning-delta": ({ type, id, delta }) => ({ type, id, delta }),
  "reasoning-end": ({ type, id }) => ({ type, id }),
  "tool-input-start": (part) => ({
    type: "tool-input-start",
    toolCallId: part.id,
    toolName: part.toolName,
    ...byProvider(part),
  }),
  "tool-input-delta": ({ id, delta }) => ({ type: "tool-input-delta", toolCallId: id, inputTextDelta: delta }),
  "tool-input-end": () => null,
  "tool-call": (part) => ({
    type: "tool-input-available",
    toolCallId: part.toolCallId,
    toolName: part.toolName,
    input: part.input,
    ...byProvider(part),
  }),
  "tool-result": (part) => ({
    type: "tool-output-available",
    toolCallId: part.toolCallId,
    output: part.output,
    ...byProvider(part),
  }),
  "tool-error": (part) => ({
    type: "tool-output-error",
    toolCallId: part.toolCallId,
    errorText: part.error,
    ...byProvider(part),
  }),
  source: sourceChunk,
  file: ({ file }) => ({
    type: "file",
    url: `data:${file.mediaType};base64,${file.base64}`,
    mediaType: file.mediaType,
  }),
  raw: () => null,
  "finish-step": () => ({ type: "finish-step" }),
  finish: ({ finishReason }) => ({ type: "finish", finishReason }),
  abort: () => ({ type: "abort" }),
  error: ({ error }) => ({ type: "error", errorText: error }),
};

function sourceChunk(part: PartOf<"source">): Chunk {
  if (part.sourceType === "url") {
    const { id: sourceId, url, title } = part;
    return { type: "source-url", sourceId, url, ...(title !== undefined && { title }) };
  }
  const { id: sourceId, mediaType, title, filename } = part;
  return { type: "source-document", sourceId, mediaType, title, ...(filename !== undefined && { filename }) };
}

/** The chunk for a part, or null when the protocol has none. */
function uiChunk(part: AgentPart): Chunk | null {
  return (CHUNKS[part.type] as (part: AgentPart) => Chunk | null)(part);
}

export class UiSink extends EventPartSink {
  readonly #messageId: string;
  readonly #deltas = new DeltaSerializer();

  /** @param messageId id of the assistant's message that the client builds from the stream */
  constructor(events: EventSink, messageId: string) {
    super(events);
    this.#messageId = messageId;
  }

  override part(part: AgentPart): Promise<void> | undefined {
    // Parts of sub-agents are not for the chat.
    if (part.subAgentId !== undefined) return undefined;
    switch (part.type) {
      case "text-delta":
      case "reasoning-delta":
        return this.events.send(this.#deltas.serialize(part));
      case "start":
        return this.events.send(JSON.stringify({ type: "start", messageId: this.#messageId }));
      default: {
        const chunk = uiChunk(part);
        return chunk === null ? undefined : this.events.send(JSON.stringify(chunk));
      }
    }
  }
}
