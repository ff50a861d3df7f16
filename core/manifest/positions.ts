/** Where each value of a YAML document stands. */
import { LineCounter } from "yaml";
import type { Path } from "./issues.ts";

export interface Position {
  /** From 1. */
  line: number;
  column: number;
}

/** Positions by path. A value that is not in the file (a default) has the position of what would hold it. */
export class Positions {
  readonly #lines: LineCounter;
  readonly #keys = new Map<string, number>();
  readonly #values = new Map<string, number>();

  constructor(lines: LineCounter = new LineCounter()) {
    this.#lines = lines;
  }

  /** The first one counts: an alias has its own place, what it stands for is at the anchor's. */
  add(path: Path, key: number | undefined, value: number | undefined): void {
    const id = JSON.stringify(path);
    const start = key ?? value;
    if (value !== undefined && !this.#values.has(id)) this.#values.set(id, value);
    if (start !== undefined && !this.#keys.has(id)) this.#keys.set(id, start);
  }

  /** Whether the file itself says something at this path. */
  has(path: Path): boolean {
    return this.#keys.has(JSON.stringify(path));
  }

  /** Of the key, for what is wrong with the whole entry. */
  key(path: Path): Position {
    return this.#find(this.#keys, path);
  }

  /** Of the value. */
  value(path: Path): Position {
    return this.#find(this.#values, path);
  }

  at(offset: number): Position {
    const { line, col } = this.#lines.linePos(offset);
    return { line: Math.max(1, line), column: Math.max(1, col) };
  }

  #find(offsets: ReadonlyMap<string, number>, path: Path): Position {
    for (let length = path.length; length >= 0; length--) {
      const id = JSON.stringify(path.slice(0, length));
      // What is not there itself is looked for under the key that should hold it.
      const offset = (length === path.length ? offsets : this.#keys).get(id);
      if (offset !== undefined) return this.at(offset);
    }
    return { line: 1, column: 1 };
  }
}
