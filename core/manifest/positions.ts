/** Where each value of a YAML document is: line and column by path. */
import { LineCounter } from "yaml";
import type { Path } from "./issues.ts";

export interface Position {
  /** From 1. */
  line: number;
  column: number;
}

/** Positions by path. */
export class Positions {
  readonly #lines: LineCounter;
  readonly #offsets = new Map<string, number>();

  constructor(lines: LineCounter = new LineCounter()) {
    this.#lines = lines;
  }

  /** The first one counts: an alias is at its own place, the content that it refers to at that of the anchor. */
  add(path: Path, offset: number | undefined): void {
    const id = JSON.stringify(path);
    if (offset !== undefined && !this.#offsets.has(id)) this.#offsets.set(id, offset);
  }

  /** Whether the file itself has a value at this path. */
  has(path: Path): boolean {
    return this.#offsets.has(JSON.stringify(path));
  }

  /** The position of the key, or of an item of a list. For what is not in the file (a default), that of the nearest key above. */
  find(path: Path): Position {
    for (let length = path.length; length >= 0; length--) {
      const offset = this.#offsets.get(JSON.stringify(path.slice(0, length)));
      if (offset !== undefined) return this.at(offset);
    }
    return { line: 1, column: 1 };
  }

  at(offset: number): Position {
    const { line, col } = this.#lines.linePos(offset);
    return { line: Math.max(1, line), column: Math.max(1, col) };
  }
}
