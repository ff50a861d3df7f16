/** `POST /agents/:id/stream`: sends each part of the run as one event. */
import type { EventSink } from "../../lib/event-sink.ts";
import type { AgentPart, PartSink } from "../run/parts.ts";

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

  /** The part as JSON, with only these fields. */
  serialize(part: DeltaPart): string {
    const { type, id } = part;
    if (id !== this.#id || type !== this.#type) {
      this.#id = id;
      this.#type = type;
      this.#prefix = JSON.stringify({ type, id, delta: "" }).slice(0, -3);
    }
    return `${this.#prefix}${JSON.stringify(part.delta)}}`;
  }
}

export class RawSink extends EventPartSink {
  readonly #deltas = new DeltaSerializer();

  override part(part: AgentPart): Promise<void> | undefined {
    if (part.type === "text-delta" || part.type === "reasoning-delta") {
      if (part.subAgentId === undefined) return this.events.send(this.#deltas.serialize(part));
      const { type, id, delta, subAgentId, subAgentName, subAgentCallId } = part;
      return this.events.send(JSON.stringify({ type, id, delta, subAgentId, subAgentName, subAgentCallId }));
    }
    return this.events.send(JSON.stringify(part));
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
