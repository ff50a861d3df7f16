/** `POST /agents/:id/stream`: each part of the run as one event. */

import type { AgentPart } from "../run/parts.ts";
import { EventPartSink } from "./event-part-sink.ts";

type DeltaPart = Extract<AgentPart, { type: "text-delta" | "reasoning-delta" }>;

/** Writes deltas by hand: they are nearly all of a stream, and may carry fields of the provider that are not sent. */
export class DeltaText {
  #id = "";
  #type = "";
  /** The text up to the delta's own, the same for all deltas of one block. */
  #head = "";

  /** The part as JSON text, of these fields alone. */
  of(part: DeltaPart): string {
    const { type, id } = part;
    if (id !== this.#id || type !== this.#type) {
      this.#id = id;
      this.#type = type;
      this.#head = JSON.stringify({ type, id, delta: "" }).slice(0, -3);
    }
    return `${this.#head}${JSON.stringify(part.delta)}}`;
  }
}

export class RawSink extends EventPartSink {
  readonly #deltas = new DeltaText();

  override part(part: AgentPart): Promise<void> | undefined {
    if (part.type === "text-delta" || part.type === "reasoning-delta") {
      if (part.subAgentId === undefined) return this.events.send(this.#deltas.of(part));
      const { type, id, delta, subAgentId, subAgentName } = part;
      return this.events.send(JSON.stringify({ type, id, delta, subAgentId, subAgentName }));
    }
    return this.events.send(JSON.stringify(part));
  }
}
