/** `POST /agents/:id/stream-object`: sends the object while it grows, then the final one. */
import type { EventSink } from "../../lib/event-sink.ts";
import { type Bracket, PartialJson } from "../run/partial-json.ts";
import type { AgentPart } from "../run/parts.ts";
import { shownUsage } from "../run/usage.ts";
import { EventPartSink } from "./raw.ts";

/** Shortest time between two partial objects; `LARGE_PAUSE_MS` is that between two large ones. */
const PAUSE_MS = 50;
const LARGE_PAUSE_MS = 500;
const LARGE_BYTES = 64 * 1024;

/**
 * Every partial object is complete, so that a reader needs only the last one. All of them together may be this many times as long as what
 * the model has written; one more and the final object are added to that.
 */
const MAX_GROWTH = 7;
/** Bytes that are not counted, so that short objects grow smoothly. */
const FREE_BYTES = 1024;

/** Must be closed when the run has ended. */
export class ObjectSink extends EventPartSink {
  #reader: PartialJson | null;
  #last = "";
  /** Bytes that the model has written; `#spent` are those of the partial objects. */
  #received = 0;
  #spent = 0;
  /** Whether the object has grown since the last partial object. */
  #grown = false;
  /** The timer after a partial object, until the next may be sent. */
  #pause: NodeJS.Timeout | null = null;
  #pausedFor = 0;
  /** Set while the reader is behind; the next delta waits for it. */
  #behind: Promise<void> | undefined;

  /** @param bracket the first character of the object, if it is known */
  constructor(events: EventSink, bracket?: Bracket) {
    super(events);
    this.#reader = new PartialJson(bracket);
  }

  override part(part: AgentPart): Promise<void> | undefined {
    switch (part.type) {
      case "text-delta":
        return this.#grow(part.delta);
      case "finish-step":
        // A second step corrects an invalid answer: its object does not continue the first one.
        this.close();
        return undefined;
      case "finish": {
        const { output: finalObject, totalUsage, finishReason, model } = part;
        const usage = shownUsage(totalUsage);
        return this.events.send(JSON.stringify({ type: "final", finalObject, usage, finishReason, model }));
      }
      default:
        return undefined;
    }
  }

  /** Stops sending partial objects. */
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
