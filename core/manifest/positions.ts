/** The position of each value in a YAML document: line and column by path, and the position of each character of a text. */
import { readFileSync, statSync } from "node:fs";
import { LineCounter } from "yaml";
import type { Path } from "./issues.ts";

// Maps a character of a YAML text to its place in the source, where the text may be quoted, escaped, folded or indented.

/** Length of the digits of YAML's longer escapes in double quotes. */
const LONG_ESCAPES: Readonly<Record<string, number>> = { x: 4, u: 6, U: 10 };
const BLANKS = /[ \t\r\n]*/y;
/** The header of a block scalar, such as `|` or `>-`, up to the end of its line. */
const BLOCK_HEADER = /^[|>][^\n]*\n/;

/**
 * Walks through both texts in parallel. White space around line breaks may differ, because YAML folds it and removes the indentation: a
 * run of it on one side matches a run on the other.
 *
 * @param source the scalar as written in the file
 * @param value its value in YAML
 * @param offset of a character of `value`
 * @returns its offset in `source`; null when the two do not match
 */
function sourceOffset(source: string, value: string, offset: number): number | null {
  const quote = source[0] === '"' || source[0] === "'" ? source[0] : "";
  const header = BLOCK_HEADER.exec(source);
  let at = quote.length;
  if (header !== null) at = endOfBlanks(source, header[0].length) - (value.length - value.trimStart().length);
  let index = 0;
  while (index < offset) {
    if (quote === '"' && source[at] === "\\") {
      if (source[at + 1] === "\n" || source[at + 1] === "\r") {
        at = endOfBlanks(source, at + 1);
        continue;
      }
      const length = LONG_ESCAPES[source[at + 1]!] ?? 2;
      const isPair = length === 10 && value.codePointAt(index)! > 0xffff;
      at += length;
      index += isPair ? 2 : 1;
      continue;
    }
    const end = endOfBlanks(source, at);
    if (end > at && source.slice(at, end).includes("\n")) {
      const resumed = endOfBlanks(value, index);
      if (resumed > offset) return at;
      at = end;
      index = resumed;
      continue;
    }
    if (source[at] === undefined || source[at] !== value[index]) return null;
    at += quote === "'" && source[at] === "'" ? 2 : 1;
    index++;
  }
  return at;
}

function endOfBlanks(text: string, start: number): number {
  BLANKS.lastIndex = start;
  BLANKS.test(text);
  return BLANKS.lastIndex;
}

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

/** The line of a plugin's file with the field that a message begins with, such as `config.rate.minimum` or `unknown key "excute"`; else the first. */
export function lineOf(file: string, message: string): number {
  const [, field = ""] = /^(?:unknown key ")?([\w.]+)["' ]/.exec(message) ?? [];
  const source = statSync(file, { throwIfNoEntry: false })?.isFile() ? readFileSync(file, "utf8") : "";
  let at = 0;
  for (const key of field.split(".")) {
    const next = source.slice(at).search(new RegExp(`\\b${key}["']?\\s*[:(]`));
    if (next === -1) break;
    at += next;
  }
  return source.slice(0, at).split("\n").length;
}
