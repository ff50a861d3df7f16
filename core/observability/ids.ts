/**
 * Ids of traces and spans that say when they began (sink.ts), so that what is kept in the order of time is found by them without
 * an index. Counted behind a random beginning, they cost a tenth of random ones.
 */
import { randomBytes, randomInt } from "node:crypto";

const DIGITS = 3;
const MASK = 0xfff;
/** A counter of six digits. */
const COUNTER = 0xffffff;

const hex = (value: number, length: number) => value.toString(16).padStart(length, "0");

export interface TraceIds {
  readonly traceId: string;
  readonly spanId: string;
}

export class Ids {
  /** What three hexadecimal digits look like. */
  readonly #digits = Array.from({ length: MASK + 1 }, (_, value) => hex(value, DIGITS));
  readonly #process = randomBytes(7).toString("hex");
  #count = randomInt(COUNTER);
  #millisecond = -1;
  /** What ids of this millisecond begin with. */
  #trace = "";
  #span = "";

  /** @param time milliseconds since 1970 */
  trace(time: number): TraceIds {
    this.#at(Math.floor(time));
    const counted = this.#counted();
    return { traceId: this.#trace + counted, spanId: this.#span + counted };
  }

  span(time: number): string {
    this.#at(Math.floor(time));
    return this.#span + this.#counted();
  }

  #at(millisecond: number): void {
    if (millisecond === this.#millisecond) return;
    this.#millisecond = millisecond;
    const digits = hex(millisecond, 12);
    this.#trace = digits + this.#process;
    this.#span = digits.slice(-10);
  }

  #counted(): string {
    const count = this.#count;
    this.#count = (count + 1) & COUNTER;
    return this.#digits[count >>> 12]! + this.#digits[count & MASK]!;
  }
}
