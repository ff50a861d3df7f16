/**
 * `POST /agents/:id/chat`: sends a run in the UI message stream protocol. Clients reject chunks with unknown keys, so each chunk is
 * built from the fields that all versions in use accept.
 */
import type { UIMessageChunk } from "../../../generated/types.ts";
import type { EventSink } from "../../lib/event-sink.ts";
import { type AgentPart, metadataOf, uiSource } from "../run/parts.ts";
import { DeltaSerializer, EventPartSink } from "./raw.ts";

type PartOf<T extends AgentPart["type"]> = Extract<AgentPart, { type: T }>;
/** A chunk whose `input` and `output` may be any JSON. */
type Chunk = { [K in UIMessageChunk["type"]]: Loosened<Extract<UIMessageChunk, { type: K }>> }[UIMessageChunk["type"]];
type Loosened<C> = { [K in keyof C]: K extends "input" | "output" ? unknown : C[K] };

const byProvider = (part: { providerExecuted?: true }) =>
  part.providerExecuted === true ? ({ providerExecuted: true } as const) : undefined;

/** The chunk for each type of part; null where the protocol has none. `UiSink` adds the id of the message to `start`. */
const CHUNKS: { readonly [T in AgentPart["type"]]: (part: PartOf<T>) => Chunk | null } = {
  start: () => ({ type: "start" }),
  "start-step": () => ({ type: "start-step" }),
  "step-restart": () => ({ type: "start-step" }),
  "text-start": bounds,
  "text-delta": ({ type, id, delta }) => ({ type, id, delta }),
  "text-end": bounds,
  "reasoning-start": bounds,
  "reasoning-delta": ({ type, id, delta }) => ({ type, id, delta }),
  "reasoning-end": bounds,
  "tool-input-start": (part) => ({
    type: "tool-input-start",
    toolCallId: part.id,
    toolName: part.toolName,
    ...byProvider(part),
  }),
  "tool-input-delta": ({ id, delta }) => ({ type: "tool-input-delta", toolCallId: id, inputTextDelta: delta }),
  "tool-input-end": () => null,
  "tool-call": (part) => ({
    ...(part.error === undefined
      ? { type: "tool-input-available" }
      : { type: "tool-input-error", errorText: part.error }),
    toolCallId: part.toolCallId,
    toolName: part.toolName,
    input: part.input,
    ...byProvider(part),
    ...metadataOf(part),
  }),
  // Not part of the message: clients pass it to `onData`.
  "tool-progress": ({ type: _, subAgentId, subAgentName, subAgentCallId, ...data }) => ({
    type: "data-tool-progress",
    id: data.toolCallId,
    data,
    transient: true,
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
  "tool-approval-request": ({ type, approvalId, toolCallId }) => ({ type, approvalId, toolCallId }),
  "tool-output-denied": ({ type, toolCallId }) => ({ type, toolCallId }),
  source: (part) => uiSource(part) as Chunk,
  file: (part) => ({
    type: "file",
    url: `data:${part.file.mediaType};base64,${part.file.base64}`,
    mediaType: part.file.mediaType,
    ...metadataOf(part),
  }),
  raw: () => null,
  "finish-step": () => ({ type: "finish-step" }),
  finish: ({ finishReason }) => ({ type: "finish", finishReason }),
  abort: () => ({ type: "abort" }),
  error: ({ error }) => ({ type: "error", errorText: error }),
};

/** The chunk at the start or the end of a block. */
function bounds(part: PartOf<"text-start" | "text-end" | "reasoning-start" | "reasoning-end">): Chunk {
  return { type: part.type, id: part.id, ...metadataOf(part) };
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
    // Parts of sub-agents are not sent to chats.
    if (part.subAgentId !== undefined) return undefined;
    switch (part.type) {
      case "text-delta":
      case "reasoning-delta":
        return this.events.send(this.#deltas.serialize(part));
      case "tool-output-denied":
        if (part.reason !== undefined) {
          // The protocol has no place for it: clients pass it to `onData`.
          const { toolCallId, toolName, reason } = part;
          const data = { toolCallId, toolName, reason };
          const chunk = { type: "data-tool-output-denied", id: toolCallId, data, transient: true };
          this.events.send(JSON.stringify(chunk));
        }
        return this.events.send(JSON.stringify(uiChunk(part)));
      case "start":
        return this.events.send(JSON.stringify({ type: "start", messageId: this.#messageId }));
      default: {
        const chunk = uiChunk(part);
        return chunk === null ? undefined : this.events.send(JSON.stringify(chunk));
      }
    }
  }
}
