/** The position of each value in a YAML document: line and column by path, and the position of each character of a text. */
import { LineCounter } from "yaml";
import type { Path } from "./issues.ts";
import { sourceOffset } from "./text-offsets.ts";

export interface Position {
  /** Line number, from 1. */
  line: number;
  column: number;
}

/** A text as the file has it, with quotes and indentation, and its value in YAML. */
interface TextPlace {
  start: number;
  end: number;
  value: string;
}

/** Positions by path. */
export class Positions {
  readonly #source: string;
  readonly #lines: LineCounter;
  readonly #offsets = new Map<string, number>();
  readonly #texts = new Map<string, TextPlace>();

  constructor(source = "", lines: LineCounter = new LineCounter()) {
    this.#source = source;
    this.#lines = lines;
  }

  /** Adds a position; the first one for a path counts. An alias has its own position, its content that of the anchor. */
  add(path: Path, offset: number | undefined): void {
    const id = JSON.stringify(path);
    if (offset !== undefined && !this.#offsets.has(id)) this.#offsets.set(id, offset);
  }

  /** Adds the place of a text, in addition to that of its key. The first one for a path counts. */
  addText(path: Path, place: TextPlace): void {
    const id = JSON.stringify(path);
    if (!this.#texts.has(id)) this.#texts.set(id, place);
  }

  /** The position of a character in a text; that of its key when it is unknown, as in a value that a variable has filled in. */
  findInText(path: Path, offset: number): Position {
    const place = this.#texts.get(JSON.stringify(path));
    if (place === undefined) return this.find(path);
    const within = sourceOffset(this.#source.slice(place.start, place.end), place.value, offset);
    return within === null ? this.find(path) : this.at(place.start + within);
  }

  /** Whether the file itself has a value at this path. */
  has(path: Path): boolean {
    return this.#offsets.has(JSON.stringify(path));
  }

  /** The position of the key, or of an item of a list. For a value that is not in the file (a default), of the nearest key above. */
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
