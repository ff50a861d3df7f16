/** Sends each part of a run as one event: as it is, or as `POST /agents/:id/stream` shows it. */
import type { EventSink } from "../../lib/event-sink.ts";
import type { AgentPart, PartSink } from "../run/parts.ts";
import { shownUsage } from "../run/usage.ts";

/** Writes the parts of a run as events of a stream; subclasses decide on their format. */
export abstract class EventPartSink implements PartSink {
  protected readonly events: EventSink;

  constructor(events: EventSink) {
    this.events = events;
  }

  get closed(): boolean {
    return this.events.closed;
  }

  accepted(): void {
    this.events.open();
  }

  abstract part(part: AgentPart): Promise<void> | undefined;
}

type DeltaPart = Extract<AgentPart, { type: "text-delta" | "reasoning-delta" }>;

/**
 * Writes the JSON of deltas by hand: nearly all parts of a stream are deltas, and their provider-specific fields must not be sent.
 */
export class DeltaSerializer {
  #id = "";
  #type = "";
  /** The JSON before the text, the same for all deltas of one block. */
  #prefix = "";
  readonly #withText: boolean;

  /** @param withText whether the text stands under `text` too */
  constructor(withText = false) {
    this.#withText = withText;
  }

  /** The part as JSON, with only these fields. */
  serialize(part: DeltaPart): string {
    const { type, id } = part;
    if (id !== this.#id || type !== this.#type) {
      this.#id = id;
      this.#type = type;
      this.#prefix = JSON.stringify({ type, id, delta: "" }).slice(0, -3);
    }
    const text = JSON.stringify(part.delta);
    return this.#withText ? `${this.#prefix}${text},"text":${text}}` : `${this.#prefix}${text}}`;
  }
}

export class RawSink extends EventPartSink {
  readonly #deltas: DeltaSerializer;
  readonly #withText: boolean;

  constructor(events: EventSink, withText = false) {
    super(events);
    this.#withText = withText;
    this.#deltas = new DeltaSerializer(withText);
  }

  override part(part: AgentPart): Promise<void> | undefined {
    if (part.type === "text-delta" || part.type === "reasoning-delta") {
      if (part.subAgentId === undefined) return this.events.send(this.#deltas.serialize(part));
      const { type, id, delta, subAgentId, subAgentName, subAgentCallId } = part;
      const text = this.#withText ? delta : undefined;
      return this.events.send(JSON.stringify({ type, id, delta, text, subAgentId, subAgentName, subAgentCallId }));
    }
    return this.events.send(JSON.stringify(part));
  }
}

/** With what the AI SDK's stream has beside our names, for clients that come from there. */
export class StreamSink extends RawSink {
  override part(part: AgentPart): Promise<void> | undefined {
    switch (part.type) {
      case "tool-approval-request": {
        const { toolCallId, toolName, input } = part;
        return this.#send({ ...part, toolCall: { type: "tool-call", toolCallId, toolName, input } });
      }
      case "finish-step":
        return this.#send({ ...part, usage: shownUsage(part.usage) });
      case "finish":
        return this.#send({ ...part, totalUsage: shownUsage(part.totalUsage) });
      default:
        return super.part(part);
    }
  }

  #send(shown: object): Promise<void> | undefined {
    return this.events.send(JSON.stringify(shown));
  }
}

/**
 * A sink for the raw events, which hears each part with the number of its event.
 *
 * @param reader for whom it hears them. Default: nobody who may leave
 */
export function hearing(
  hear: (part: AgentPart, id: number, json: string) => Promise<void> | undefined,
  reader: Partial<EventSink> = {},
): EventSink {
  let last = 0;
  return sending(reader, (json, id = last + 1) => {
    last = id;
    return hear(JSON.parse(json) as AgentPart, id, json);
  });
}

/** The sink, to which events are sent in another way. */
export const sending = (events: Partial<EventSink>, send: EventSink["send"]): EventSink => ({
  open: () => events.open?.(),
  send,
  get closed() {
    return events.closed === true;
  },
  onLeave: (listener) => events.onLeave?.(listener),
});
