/** Keeps the newest lines of the log for the endpoints that show them. Lines are kept as text, and parsed when requested. */
import { shorten } from "./log-line.ts";

/** Of all lines together. */
const MAX_CHARACTERS = 16 * 1024 * 1024;
/** The long values of a longer line are cut. */
const MAX_LINE_CHARACTERS = 16 * 1024;
/** What a string costs in addition to its characters, about. */
const STRING_OVERHEAD = 32;

export class LogRing {
  #capacity: number;
  /** Oldest first, from `#first` on. */
  #lines: string[] = [];
  #first = 0;
  #characters = 0;
  /** Called with every line; null while nobody listens. */
  listener: ((line: string) => void) | null = null;

  /** @param capacity how many lines are kept; 0: none */
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

  /** Newest first. */
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
