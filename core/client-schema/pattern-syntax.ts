/**
 * Parses a JavaScript regular expression into a tree. Whatever matches one character (a letter, an escape, a class) stays text:
 * the native engine matches it, because only that engine knows the meaning of `\p{Lu}`.
 */

export type Node =
  /** `source` matches exactly one character. */
  | { kind: "one"; source: string }
  | { kind: "sequence"; items: Node[] }
  | { kind: "either"; items: Node[] }
  | { kind: "repeat"; item: Node; minimum: number; maximum: number }
  | { kind: "start" }
  | { kind: "end" }
  | { kind: "word"; edge: boolean }
  | { kind: "look"; item: Node; ahead: boolean; wanted: boolean };

const MAX_DEPTH = 100;
const QUANTIFIER = /[*+?]|\{(\d+)(?:(,)(\d*))?\}/y;
/** Escapes; the last alternative is any character after the backslash. */
const ESCAPE = /\\(?:u\{[0-9a-f]+\}|u[89ab][0-9a-f]{3}|u[0-9a-f]{4}|x[0-9a-f]{2}|c[a-z]|[pP]\{[^}]*\}|[\s\S])/iy;
const SURROGATES = /\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}/y;
const GROUP = /\((?:\?(?::|=|!|<=|<!|<[^>]+>))?/y;

/** @throws Error for an invalid expression, and for back-references, which cannot be matched in linear time */
export function parseExpression(source: string, flags: string): Node {
  new RegExp(source, flags);
  return new Reader(source, flags.includes("u")).read();
}

class Reader {
  readonly #source: string;
  readonly #unicode: boolean;
  #at = 0;
  #depth = 0;

  constructor(source: string, unicode: boolean) {
    this.#source = source;
    this.#unicode = unicode;
  }

  read(): Node {
    const node = this.#either();
    if (this.#at < this.#source.length) throw new Error(`cannot be read from character ${this.#at} on`);
    return node;
  }

  #take(expression: RegExp): RegExpExecArray | null {
    expression.lastIndex = this.#at;
    const found = expression.exec(this.#source);
    if (found !== null) this.#at += found[0].length;
    return found;
  }

  #either(): Node {
    const items = [this.#sequence()];
    while (this.#source[this.#at] === "|") {
      this.#at++;
      items.push(this.#sequence());
    }
    return items.length === 1 ? items[0]! : { kind: "either", items };
  }

  #sequence(): Node {
    const items: Node[] = [];
    for (;;) {
      const next = this.#source[this.#at];
      if (next === undefined || next === "|" || next === ")") return { kind: "sequence", items };
      items.push(this.#repeated(this.#item(next)));
    }
  }

  #repeated(item: Node): Node {
    const found = this.#take(QUANTIFIER);
    if (found === null) return item;
    if (this.#source[this.#at] === "?") this.#at++; // lazy or greedy makes no difference to whether it matches
    const [text, first, comma, last] = found;
    if (text === "?") return { kind: "repeat", item, minimum: 0, maximum: 1 };
    const minimum = first === undefined ? (text === "+" ? 1 : 0) : Number(first);
    const maximum =
      first === undefined || (comma !== undefined && last === "") ? Number.POSITIVE_INFINITY : Number(last ?? first);
    return { kind: "repeat", item, minimum, maximum };
  }

  #item(next: string): Node {
    switch (next) {
      case "^":
        this.#at++;
        return { kind: "start" };
      case "$":
        this.#at++;
        return { kind: "end" };
      case "(":
        return this.#group();
      case "[":
        return { kind: "one", source: this.#class() };
      case "\\":
        return this.#escape();
      default: {
        const character = this.#unicode ? String.fromCodePoint(this.#source.codePointAt(this.#at)!) : next;
        this.#at += character.length;
        // Without the flag u these characters need no escape.
        return { kind: "one", source: /[{}\]]/.test(character) ? `\\${character}` : character };
      }
    }
  }

  #group(): Node {
    const opening = this.#take(GROUP)![0];
    if (this.#source[this.#at] === "?" && opening === "(") throw new Error("has an unknown kind of group");
    if (++this.#depth > MAX_DEPTH) throw new Error(`has groups more than ${MAX_DEPTH} levels deep`);
    const item = this.#either();
    this.#depth--;
    this.#at++;
    if (opening === "(?=" || opening === "(?!") return { kind: "look", item, ahead: true, wanted: opening === "(?=" };
    if (opening === "(?<=" || opening === "(?<!")
      return { kind: "look", item, ahead: false, wanted: opening === "(?<=" };
    return item;
  }

  #class(): string {
    const from = this.#at++;
    while (this.#source[this.#at] !== "]") this.#at += this.#source[this.#at] === "\\" ? 2 : 1;
    return this.#source.slice(from, ++this.#at);
  }

  #escape(): Node {
    const next = this.#source[this.#at + 1]!;
    if (next === "b" || next === "B") {
      this.#at += 2;
      return { kind: "word", edge: next === "b" };
    }
    if (/[1-9]/.test(next) || next === "k") throw new Error("must not refer back to a group");
    const found = (this.#unicode ? this.#take(SURROGATES) : null) ?? this.#take(ESCAPE)!;
    return { kind: "one", source: found[0] };
  }
}
