/** Keeps the newest log lines for the endpoints that show them. They are kept as text, and parsed on request. */
import { shorten } from "./log-line.ts";

/** Most characters of all lines together. */
const MAX_CHARACTERS = 16 * 1024 * 1024;
/** Longest line; the long values of a longer one are cut. */
const MAX_LINE_CHARACTERS = 16 * 1024;
/** Approximate memory of a string in addition to its characters. */
const STRING_OVERHEAD = 32;

export class LogRing {
  #capacity: number;
  /** The lines from `#first` on, oldest first. */
  #lines: string[] = [];
  #first = 0;
  #characters = 0;
  /** Called with every line; null while there is no listener. */
  listener: ((line: string) => void) | null = null;

  /** @param capacity how many lines are kept; 0 for none */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  resize(capacity: number): void {
    this.#capacity = capacity;
    this.#evict();
  }

  get count(): number {
    return this.#lines.length - this.#first;
  }

  push(written: string): void {
    const line = written.length > MAX_LINE_CHARACTERS ? shorten(written, MAX_LINE_CHARACTERS) : written;
    if (this.#capacity > 0) {
      this.#lines.push(line);
      this.#characters += line.length + STRING_OVERHEAD;
      this.#evict();
    }
    this.listener?.(line);
  }

  /** Yields the newest line first. */
  *newest(): Generator<string> {
    for (let index = this.#lines.length - 1; index >= this.#first; index--) yield this.#lines[index]!;
  }

  #evict(): void {
    while (this.count > this.#capacity || this.#characters > MAX_CHARACTERS) {
      this.#characters -= this.#lines[this.#first]!.length + STRING_OVERHEAD;
      this.#lines[this.#first++] = "";
    }
    // Not with every line, because moving the rest takes time in proportion to its length.
    if (this.#first > 1024 && this.#first > this.#lines.length / 2) {
      this.#lines.splice(0, this.#first);
      this.#first = 0;
    }
  }
}
