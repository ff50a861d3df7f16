/** Reads YAML into plain values, and records the position of each. */

import { readFileSync, statSync } from "node:fs";
import { type Alias, isAlias, isScalar, isSeq, LineCounter, type Node, type Pair, parseDocument } from "yaml";
import type { Path, Problem } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { changedInteger } from "../lib/large-integers.ts";

// The position of each value in a YAML document: line and column by path, and the position of each character of a text.

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

interface Position {
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

/** A problem of the text: it has a position even where there is no value, as on a line that is not YAML. */
interface PlacedProblem extends Problem {
  readonly position: Position;
}

interface ManifestSource {
  /** Plain objects, arrays and scalars; undefined when the text could not be read. */
  value: unknown;
  positions: Positions;
  problems: PlacedProblem[];
}

/** Bound of the values of a document, which a few aliases of aliases are enough to exceed. */
const MAX_VALUES = 200_000;
const MAX_DEPTH = 200;

/** Never throws: all problems are in `problems`. */
export function readYaml(text: string): ManifestSource {
  const lines = new LineCounter();
  const positions = new Positions(text, lines);
  const source: ManifestSource = { value: undefined, positions, problems: [] };
  const document = parseDocument(text, { lineCounter: lines, uniqueKeys: false, strict: true, prettyErrors: false });
  const textLines = text.split("\n");
  let lastErrorLine = 0;
  for (const { message, pos } of document.errors) {
    const position = positions.at(pos[0]);
    // After one mistake the parser reports every line up to the next key without indentation.
    if (lastErrorLine > 0 && !textLines.slice(lastErrorLine, position.line).some((row) => /^[^\s#]/.test(row)))
      continue;
    lastErrorLine = position.line;
    const isVariable = text.startsWith("${", pos[0] - 1);
    const explained = isVariable ? BARE_VARIABLE : explainSyntax(message, textLines[position.line - 1]);
    source.problems.push({ path: [], position, message: explained, severity: "error" });
  }
  for (const { message, pos } of document.warnings) {
    source.problems.push({ path: [], position: positions.at(pos[0]), message, severity: "warning" });
  }
  if (document.errors.length > 0) return source;
  const reader = createReader(source);
  const contents = document.contents as Node | null;
  source.value = contents === null ? null : reader.read(contents, [], undefined);
  return source;
}

// biome-ignore lint/suspicious/noTemplateCurlyInString: the manifest's own syntax
const BARE_VARIABLE = 'not YAML: a variable between { } or [ ] needs quotes: "${NAME}"';

/** Messages of the parser and their usual cause. */
const SYNTAX: readonly [RegExp, string][] = [
  [/multiple documents/i, "a second document begins here: a manifest is one document"],
  [/same column/i, "not YAML: this line is not indented like the keys beside it"],
  [
    /nested mappings are not allowed/i,
    'not YAML: a value with ": " in it needs quotes; else a line is indented too deep',
  ],
  [/must be sufficiently indented and end with/i, 'not YAML: a "{" or "[" before this is not closed'],
  [/implicit (?:map )?keys need to be/i, 'not YAML: a key in this line has no ":" behind it'],
  [/missing closing/i, "not YAML: a quote that opens in this value is not closed"],
];

function explainSyntax(message: string, row: string | undefined): string {
  const known = SYNTAX.find(([pattern]) => pattern.test(message));
  if (known !== undefined) return known[1];
  const text = `not YAML: ${message.charAt(0).toLowerCase()}${message.slice(1)}`;
  return row !== undefined && /[:-]\s+\{\{/.test(row) ? `${text}; quote a value that begins with {{` : text;
}

/** One pass over the nodes of a document. */
function createReader(source: ManifestSource) {
  /** Anchors whose content is being read: an alias to one of them would recurse forever. */
  const openNodes: Node[] = [];
  const anchors = new Map<string, Node>();
  let valueCount = 0;

  function read(node: Node | null, path: Path, key: number | undefined): unknown {
    const offset = node?.range?.[0];
    source.positions.add(path, key ?? offset);
    if (++valueCount > MAX_VALUES || path.length > MAX_DEPTH) {
      if (valueCount <= MAX_VALUES + 1) problem(path, offset, "too many values, or nested too deep");
      valueCount = MAX_VALUES + 1;
      return null;
    }
    if (node === null) return null;
    if (isAlias(node)) return alias(node, path, key);
    if (isScalar(node)) {
      anchor(node);
      const { value, range } = node;
      if (typeof value === "string" && range) source.positions.addText(path, { start: range[0], end: range[1], value });
      const [integer] = (typeof value === "number" && /^[-0-9][0-9]+$/.exec(node.source ?? "")) || [];
      if (integer !== undefined && changedInteger(integer) !== null)
        problem(path, offset, `${integer} is too large for a number: write it as a string`);
      return typeof value === "bigint" ? Number(value) : value;
    }
    anchor(node);
    openNodes.push(node);
    const value = isSeq(node) ? list(node.items as Node[], path) : map(node, path);
    openNodes.pop();
    return value;
  }

  function anchor(node: Node): void {
    const name = (node as { anchor?: string }).anchor;
    if (name !== undefined) anchors.set(name, node);
  }

  function alias(node: Alias, path: Path, key: number | undefined): unknown {
    const target = anchors.get(node.source);
    if (target === undefined || openNodes.includes(target)) {
      const why = target === undefined ? "there is no such anchor before it" : "it contains itself";
      problem(path, node.range?.[0], `*${node.source}: ${why}`);
      return null;
    }
    // A problem inside is reported at the anchor, because that is the text to change.
    return read(target, path, key);
  }

  function list(items: readonly (Node | null)[], path: Path): unknown[] {
    return items.map((item, index) => read(item, [...path, index], undefined));
  }

  function map(node: Node, path: Path): unknown {
    if (!isObject(node)) return null;
    if (isBareExpression(node.items as Pair<Node | null, Node | null>[])) {
      problem(path, node.range?.[0], 'YAML reads {{ ... }} as a map: quote it, "{{ ... }}"');
      return "";
    }
    const own: Record<string, unknown> = {};
    const merges: (Node | null)[] = [];
    for (const { key, value } of node.items as Pair<Node | null, Node | null>[]) {
      const offset = key?.range?.[0];
      const name = nameOf(key, path, offset);
      if (name === null) continue;
      if (name === "<<") merges.push(value);
      else if (Object.hasOwn(own, name)) {
        problem([...path, name], offset, "is defined twice");
      } else own[name] = read(value, [...path, name], offset);
    }
    for (const other of merges.flatMap((merge) => mergedFrom(merge, path))) {
      for (const name of Object.keys(other)) if (!Object.hasOwn(own, name)) own[name] = other[name];
    }
    return own;
  }

  /** The maps in `<<: *anchor` or `<<: [*a, *b]`, in that order. Own keys take precedence. */
  function mergedFrom(value: Node | null, path: Path): Record<string, unknown>[] {
    const parts = isSeq(value) ? (value.items as Node[]) : [value];
    return parts.flatMap((part) => {
      const merged = read(part, path, undefined);
      if (isObject(merged)) return [merged as Record<string, unknown>];
      problem(path, part?.range?.[0], "<< takes a map or a list of maps");
      return [];
    });
  }

  function nameOf(key: Node | null, path: Path, offset: number | undefined): string | null {
    const value = isScalar(key) ? key.value : isAlias(key) ? read(key, path, undefined) : undefined;
    if (typeof value === "object" || value === undefined) {
      problem(path, offset, "a key must be text");
      return null;
    }
    if (value === "__proto__") {
      problem(path, offset, '"__proto__" is not allowed as a key');
      return null;
    }
    return String(value);
  }

  function problem(path: Path, offset: number | undefined, message: string): void {
    const position = offset === undefined ? source.positions.find(path) : source.positions.at(offset);
    source.problems.push({ path, position, message, severity: "error" });
  }

  return { read };
}

/** Whether the items come from `{{ x }}` without quotes, which is a flow map whose only key is a flow map. */
function isBareExpression(items: readonly Pair<Node | null, Node | null>[]): boolean {
  const [pair] = items;
  return (
    items.length === 1 && pair !== undefined && isObject(pair.key) && pair.key.flow === true && !pair.value?.range?.[1]
  );
}
