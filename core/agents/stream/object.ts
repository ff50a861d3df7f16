/** `POST /agents/:id/stream-object`: sends the object while it grows, then the final one. */
import type { EventSink } from "../../lib/event-sink.ts";
import { type Bracket, PartialJson } from "../run/partial-json.ts";
import type { AgentPart } from "../run/parts.ts";
import { EventPartSink } from "./event-part-sink.ts";

/** Least time between two partial objects, and between two large ones. */
const PAUSE_MS = 50;
const LARGE_PAUSE_MS = 500;
const LARGE_BYTES = 64 * 1024;

/**
 * Every partial object is whole, so that a reader needs only the last one. All together may be so many times as long as what the
 * model has written; one more and the final object come on top of that.
 */
const MAX_GROWTH = 7;
/** Bytes that count for nothing, so that short objects grow smoothly. */
const FREE_BYTES = 1024;

/** `close` it when the run is over. */
export class ObjectSink extends EventPartSink {
  #reader: PartialJson | null;
  #last = "";
  /** Bytes that the model has written, and that partial objects took. */
  #received = 0;
  #spent = 0;
  /** Whether there is something new to send. */
  #grown = false;
  /** Runs after a partial object, until the next may be sent. */
  #pause: NodeJS.Timeout | null = null;
  #pausedFor = 0;
  /** Set while the reader is behind, for the next delta to wait for. */
  #behind: Promise<void> | undefined;

  /** @param bracket what the object begins with, if it is known */
  constructor(events: EventSink, bracket?: Bracket) {
    super(events);
    this.#reader = new PartialJson(bracket);
  }

  override part(part: AgentPart): Promise<void> | undefined {
    switch (part.type) {
      case "text-delta":
        return this.#grow(part.delta);
      case "finish-step":
        // A second step corrects an answer that was not valid: its object does not continue the first one.
        this.close();
        return undefined;
      case "finish": {
        const { output: finalObject, totalUsage: usage, finishReason, model } = part;
        return this.events.send(JSON.stringify({ type: "final", finalObject, usage, finishReason, model }));
      }
      default:
        return undefined;
    }
  }

  /** No partial objects are sent any more. */
  close(): void {
    this.#reader = null;
    if (this.#pause !== null) clearTimeout(this.#pause);
    this.#pause = null;
  }

  #grow(delta: string): Promise<void> | undefined {
    if (this.#reader === null) return undefined;
    this.#reader.feed(delta);
    this.#received += Buffer.byteLength(delta);
    this.#grown = true;
    if (this.#pause === null) this.#send();
    const behind = this.#behind;
    this.#behind = undefined;
    return behind;
  }

  #send(): void {
    const reader = this.#reader;
    // Nothing is sent before the object has content.
    if (reader === null || reader.length <= 1 || this.#spent > MAX_GROWTH * this.#received + FREE_BYTES) return;
    this.#grown = false;
    const value = reader.snapshot();
    const text = value === undefined ? "" : JSON.stringify(value);
    if (text.length <= 2 || text === this.#last) {
      this.#spent += reader.length;
      return;
    }
    this.#last = text;
    const event = `{"type":"partial","partialUpdate":${text}}`;
    this.#spent += Buffer.byteLength(event);
    this.#behind = this.events.send(event);
    this.#wait(PAUSE_MS);
  }

  #wait(milliseconds: number): void {
    this.#pausedFor = milliseconds;
    this.#pause = setTimeout(this.#waited, milliseconds);
  }

  readonly #waited = (): void => {
    this.#pause = null;
    if (!this.#grown || this.events.closed) return;
    if (this.#pausedFor === PAUSE_MS && this.#reader!.length > LARGE_BYTES) this.#wait(LARGE_PAUSE_MS - PAUSE_MS);
    else this.#send();
  };
}
