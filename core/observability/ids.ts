/**
 * Ids of traces and spans. They contain the time at which they were created, so that traces, which are stored in order of time, are
 * found without an index. They end in a counter with a random start, which costs a tenth of a random id.
 */
import { randomBytes, randomInt } from "node:crypto";

const DIGITS = 3;
const MASK = 0xfff;
/** Mask of the counter: six hexadecimal digits. */
const COUNTER = 0xffffff;

const hex = (value: number, length: number) => value.toString(16).padStart(length, "0");

interface TraceIds {
  readonly traceId: string;
  readonly spanId: string;
}

export class Ids {
  /** Every number of three hexadecimal digits, as text. */
  readonly #digits = Array.from({ length: MASK + 1 }, (_, value) => hex(value, DIGITS));
  readonly #process = randomBytes(7).toString("hex");
  #count = randomInt(COUNTER);
  #millisecond = -1;
  /** The prefix of ids in this millisecond. */
  #trace = "";
  #span = "";

  /** @param time milliseconds since 1970 */
  trace(time: number): TraceIds {
    this.#setTime(Math.floor(time));
    const count = this.#nextCount();
    return { traceId: this.#trace + count, spanId: this.#span + count };
  }

  span(time: number): string {
    this.#setTime(Math.floor(time));
    return this.#span + this.#nextCount();
  }

  #setTime(millisecond: number): void {
    if (millisecond === this.#millisecond) return;
    this.#millisecond = millisecond;
    const digits = hex(millisecond, 12);
    this.#trace = digits + this.#process;
    this.#span = digits.slice(-10);
  }

  #nextCount(): string {
    const count = this.#count;
    this.#count = (count + 1) & COUNTER;
    return this.#digits[count >>> 12]! + this.#digits[count & MASK]!;
  }
}
