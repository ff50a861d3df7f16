/** The output of a response, and its events in the order and with the numbers that clients check. */
import type { SharedV3ProviderMetadata } from "@ai-sdk/provider";
import { errorFields } from "./errors.ts";
import { sealed } from "./item-parts.ts";
import {
  type CallItem,
  endOf,
  failedEnd,
  itemId,
  type MessageItem,
  type OutputItem,
  type OwnCallItem,
  type ReasoningItem,
  type ResponseEnd,
  type ResponseResource,
  responseUsage,
} from "./items.ts";
import type { Said, StreamTranslation } from "./run-parts.ts";

// The output of a response: turns the output of a run into items, and the events about them.

/** An event without its number in the stream. */
interface ResponseEvent {
  readonly type: string;
  readonly [key: string]: unknown;
}

const NONE: readonly ResponseEvent[] = [];

/** The text block that is being written. */
interface Block {
  readonly id: string;
  readonly index: number;
  text: string;
}

export class ResponseOutput {
  readonly #response: string;
  readonly #now: () => number;
  /** Items in the order of `output_index`, including those that were dropped. */
  readonly #items: OutputItem[] = [];
  readonly #dropped = new Set<OutputItem>();
  /** The number of items at the start of the step. */
  #stepBegin = 0;
  usage: object | null = null;
  /** Set at the end of the run. */
  end: ResponseEnd | null = null;
  #block: Block = { id: "", index: -1, text: "" };
  /** Indexes of the agent's own calls that have not ended. */
  readonly #calls = new Map<string, number>();
  #hasCalls = false;
  /** The index of the block that has ended, until what follows tells whether it is whole; -1 for none. */
  #closing = -1;

  /** @param response its id @param now seconds since 1970 */
  constructor(response: string, now: () => number) {
    this.#response = response;
    this.#now = now;
  }

  /** Whether a call of the agent itself has no result: its run waits for a person. */
  get waits(): boolean {
    return this.#calls.size > 0;
  }

  get items(): readonly OutputItem[] {
    return this.#dropped.size === 0 ? this.#items : this.#items.filter((item) => !this.#dropped.has(item));
  }

  /** The events for a piece of output, in their order. */
  of(said: Said): readonly ResponseEvent[] {
    if (said.type === "end") {
      this.usage = responseUsage(said.usage);
      this.end = endOf(said.finishReason, this.#hasCalls, this.#now());
    }
    if (this.#closing === -1) return this.#events(said);
    return [this.#closed(), ...this.#events(said)];
  }

  #events(said: Said): readonly ResponseEvent[] {
    switch (said.type) {
      case "step":
        this.#stepBegin = this.#items.length;
        return NONE;
      case "restart":
        return this.#dropStep();
      case "text-start":
        return this.#beginText();
      case "text":
        return [this.#delta("response.output_text.delta", said.delta, { content_index: 0, logprobs: [] })];
      case "text-end":
        return this.#endText(said.metadata);
      case "reasoning-start":
        return this.#beginReasoning();
      case "reasoning":
        return [this.#delta("response.reasoning_summary_text.delta", said.delta, { summary_index: 0 })];
      case "reasoning-end":
        return this.#endReasoning(said.metadata);
      case "own-call":
        return this.#beginOwnCall(said);
      case "own-result":
        return this.#endOwnCall(said);
      case "call":
        return this.#call(said);
      case "end":
        return NONE;
    }
  }

  /** The event for the end of the last block: an answer that was cut off has cut it off. */
  #closed(): ResponseEvent {
    const index = this.#closing;
    this.#closing = -1;
    const item = this.#items[index]!;
    // Out of steps, the answer itself is whole.
    const cut = this.end?.incomplete_details?.reason ?? "max_steps";
    return this.#done(index, cut === "max_steps" ? item : { ...item, status: "incomplete" });
  }

  #add(item: OutputItem): { readonly index: number; readonly added: ResponseEvent } {
    const index = this.#items.push(item) - 1;
    return { index, added: { type: "response.output_item.added", output_index: index, item } };
  }

  #done(index: number, item: OutputItem): ResponseEvent {
    this.#items[index] = item;
    return { type: "response.output_item.done", output_index: index, item };
  }

  #nextId = (type: OutputItem["type"]): string => itemId(type, this.#response, String(this.#items.length));

  /** The fields of events about the current text block. */
  #place = () => ({ item_id: this.#block.id, output_index: this.#block.index });

  #delta(type: string, delta: string, more: object): ResponseEvent {
    this.#block.text += delta;
    return { type, ...this.#place(), ...more, delta };
  }

  #beginText(): readonly ResponseEvent[] {
    const id = this.#nextId("message");
    const item: MessageItem = { type: "message", id, status: "in_progress", role: "assistant", content: [] };
    const { index, added } = this.#add(item);
    this.#block = { id, index, text: "" };
    return [added, { type: "response.content_part.added", ...this.#place(), content_index: 0, part: outputText("") }];
  }

  #endText(metadata: SharedV3ProviderMetadata | undefined): readonly ResponseEvent[] {
    const { id, index, text } = this.#block;
    const part = outputText(text);
    const message = { type: "message", id, status: "completed", role: "assistant", content: [part] } as const;
    const place = { ...this.#place(), content_index: 0 };
    this.#items[index] = { ...message, ...carried(metadata) };
    this.#closing = index;
    return [
      { type: "response.output_text.done", ...place, text, logprobs: [] },
      { type: "response.content_part.done", ...place, part },
    ];
  }

  #beginReasoning(): readonly ResponseEvent[] {
    const id = this.#nextId("reasoning");
    const { index, added } = this.#add({ type: "reasoning", id, status: "in_progress", summary: [] });
    this.#block = { id, index, text: "" };
    const part = { type: "summary_text", text: "" };
    return [added, { type: "response.reasoning_summary_part.added", ...this.#place(), summary_index: 0, part }];
  }

  #endReasoning(metadata: SharedV3ProviderMetadata | undefined): readonly ResponseEvent[] {
    const { id, index, text } = this.#block;
    const part = { type: "summary_text", text } as const;
    const place = { ...this.#place(), summary_index: 0 };
    const item: ReasoningItem = { type: "reasoning", id, status: "completed", summary: text === "" ? [] : [part] };
    this.#items[index] = metadata === undefined ? item : { ...item, encrypted_content: sealed(metadata) };
    this.#closing = index;
    return [
      { type: "response.reasoning_summary_text.done", ...place, text },
      { type: "response.reasoning_summary_part.done", ...place, part },
    ];
  }

  #beginOwnCall({ call }: Extract<Said, { type: "own-call" }>): readonly ResponseEvent[] {
    const { toolCallId, toolName: name, input, providerMetadata } = call;
    const type = "penstock:tool_call";
    const called = { call_id: toolCallId, name, arguments: JSON.stringify(input) };
    const open = { type, id: this.#nextId(type), status: "in_progress", ...called, output: null, error: null } as const;
    const { index, added } = this.#add({ ...open, ...carried(providerMetadata) });
    this.#calls.set(toolCallId, index);
    return [added];
  }

  #endOwnCall({ id, output, error }: Extract<Said, { type: "own-result" }>): readonly ResponseEvent[] {
    const index = this.#calls.get(id);
    if (index === undefined) return NONE;
    this.#calls.delete(id);
    return [this.#done(index, { ...(this.#items[index] as OwnCallItem), status: "completed", output, error })];
  }

  #call({ call }: Extract<Said, { type: "call" }>): readonly ResponseEvent[] {
    this.#hasCalls = true;
    const { toolCallId: call_id, toolName: name, input, providerMetadata } = call;
    const id = this.#nextId("function_call");
    const text = JSON.stringify(input);
    const open: CallItem = { type: "function_call", id, status: "in_progress", call_id, name, arguments: "" };
    const { index, added } = this.#add(open);
    const place = { item_id: id, output_index: index };
    return [
      added,
      { type: "response.function_call_arguments.delta", ...place, delta: text },
      { type: "response.function_call_arguments.done", ...place, name, arguments: text },
      this.#done(index, { ...open, status: "completed", arguments: text, ...carried(providerMetadata) }),
    ];
  }

  /** Drops the items of a step. They keep their index, by which clients know them; unfinished ones are reported as incomplete. */
  #dropStep(): readonly ResponseEvent[] {
    const events: ResponseEvent[] = [];
    for (let index = this.#stepBegin; index < this.#items.length; index++) {
      const item = this.#items[index]!;
      if (item.status === "in_progress") events.push(this.#done(index, this.#unfinished(item)));
      this.#dropped.add(this.#items[index]!);
    }
    this.#stepBegin = this.#items.length;
    this.#calls.clear();
    return events;
  }

  /** The items of a run that ended early: unfinished ones are marked as incomplete. */
  cutOff(): readonly OutputItem[] {
    return this.items.map((item) => (item.status === "in_progress" ? this.#unfinished(item) : item));
  }

  #unfinished(item: OutputItem): OutputItem {
    const { id, text } = this.#block;
    if (item.id !== id) return { ...item, status: "incomplete" };
    return item.type === "message"
      ? { ...item, status: "incomplete", content: [outputText(text)] }
      : ({ ...item, status: "incomplete", summary: [{ type: "summary_text", text }] } as ReasoningItem);
  }
}

const outputText = (text: string) => ({ type: "output_text", text, annotations: [], logprobs: [] }) as const;

const carried = (metadata: SharedV3ProviderMetadata | undefined) =>
  metadata === undefined ? undefined : { provider_metadata: metadata };

// The events of a response as server-sent events.

export const DONE = "data: [DONE]\n\n";

/** Each event as one line of data, because some clients lose one that is split. @param after number of the client's last event */
export function sseTexts(events: readonly NumberedEvent[], after = -1): string {
  let texts = "";
  for (const { type, number, json } of events) if (number > after) texts += `event: ${type}\ndata: ${json}\n\n`;
  return texts;
}

/** @param finish returns the whole resource once the run has ended */
export const responseStream = (events: ResponseEvents, finish: () => Promise<ResponseResource>): StreamTranslation => ({
  begin: () => sseTexts(events.begin()),
  write: (said: Said) => sseTexts(events.of(said)),
  end: async () => sseTexts(events.end(await finish())) + DONE,
  fail: (message, error) => sseTexts(events.fail(message, error)) + DONE,
});

/** An event as it is sent. */
interface NumberedEvent {
  readonly type: string;
  readonly number: number;
  readonly json: string;
}

export class ResponseEvents {
  readonly #resource: ResponseResource;
  readonly #output: ResponseOutput;
  #sequence = 0;

  /** @param resource at the start of the response */
  constructor(resource: ResponseResource, output: ResponseOutput) {
    this.#resource = resource;
    this.#output = output;
  }

  begin(): readonly NumberedEvent[] {
    const response = this.#resource;
    return this.#numbered([
      { type: "response.created", response },
      { type: "response.in_progress", response },
    ]);
  }

  of(said: Said): readonly NumberedEvent[] {
    return this.#numbered(this.#output.of(said));
  }

  /** @param response at its end. A failure is sent as two events, because some clients read only the error, and others only the response */
  end(response: ResponseResource): readonly NumberedEvent[] {
    const { status, error } = response;
    if (status === "completed" || status === "incomplete")
      return this.#numbered([{ type: `response.${status}`, response }]);
    const { code, message } = error ?? { code: "cancelled", message: "the response was cancelled" };
    return this.#numbered([
      { type: "error", error: { type: "server_error", code, message, param: "" } },
      { type: "response.failed", response },
    ]);
  }

  fail(message: string, error: unknown): readonly NumberedEvent[] {
    // Clients expect the start of a response before its end.
    const begun = this.#sequence === 0 ? this.begin() : [];
    const fields = errorFields(error, message);
    const end = failedEnd(fields.code, message);
    const { usage } = this.#output;
    const response = { ...this.#resource, ...end, output: this.#output.cutOff(), usage, store: false };
    const events = [
      { type: "error", error: fields },
      { type: "response.failed", response },
    ];
    return [...begun, ...this.#numbered(events)];
  }

  /** The error event when the stream ends before the response. It has the number of the previous event, after which readers continue. */
  cut(message: string): NumberedEvent {
    const [type, number] = ["error", Math.max(0, this.#sequence - 1)];
    return { type, number, json: JSON.stringify({ type, sequence_number: number, error: errorFields(null, message) }) };
  }

  #numbered(events: readonly ResponseEvent[]): readonly NumberedEvent[] {
    return events.map(({ type, ...rest }) => {
      const number = this.#sequence++;
      return { type, number, json: JSON.stringify({ type, sequence_number: number, ...rest }) };
    });
  }
}
