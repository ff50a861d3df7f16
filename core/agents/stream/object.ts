/** `POST /agents/:id/stream-object`: sends the object while it grows, then the final one. */
import { PartialJson } from "../run/partial-json.ts";
import type { AgentPart } from "../run/parts.ts";
import { EventPartSink } from "./event-part-sink.ts";

export class ObjectSink extends EventPartSink {
  #reader: PartialJson | null = new PartialJson();
  #last = "";

  override part(part: AgentPart): Promise<void> | undefined {
    switch (part.type) {
      case "text-delta":
        return this.#grow(part.delta);
      case "finish-step":
        // A second step corrects an answer that was not valid: its object does not continue the first one.
        this.#reader = null;
        return undefined;
      case "finish": {
        const { output: finalObject, totalUsage: usage, finishReason, model } = part;
        return this.events.send(JSON.stringify({ type: "final", finalObject, usage, finishReason, model }));
      }
      default:
        return undefined;
    }
  }

  #grow(delta: string): Promise<void> | undefined {
    const reader = this.#reader;
    if (reader === null) return undefined;
    reader.feed(delta);
    const value = reader.snapshot();
    if (value === undefined) return undefined;
    const text = JSON.stringify(value);
    // Only changes are sent, and nothing before the object has content.
    if (text.length <= 2 || text === this.#last) return undefined;
    this.#last = text;
    return this.events.send(`{"type":"partial","partialUpdate":${text}}`);
  }
}
