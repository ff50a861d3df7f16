/**
 * Reads a regular expression of JavaScript into a tree. Whatever stands for one character (a letter, an escape, a class) stays
 * text, for the engine of the language to judge: it alone knows what `\p{Lu}` is.
 */

export type Node =
  /** `source` stands for exactly one character. */
  | { kind: "one"; source: string }
  | { kind: "sequence"; items: Node[] }
  | { kind: "either"; items: Node[] }
  | { kind: "repeat"; item: Node; least: number; most: number }
  | { kind: "start" }
  | { kind: "end" }
  | { kind: "word"; edge: boolean }
  | { kind: "look"; item: Node; ahead: boolean; wanted: boolean };

const DEEPEST = 100;
const QUANTIFIER = /[*+?]|\{(\d+)(?:(,)(\d*))?\}/y;
/** Longer escapes; any other is the character behind the backslash. */
const ESCAPE = /\\(?:u\{[0-9a-f]+\}|u[89ab][0-9a-f]{3}|u[0-9a-f]{4}|x[0-9a-f]{2}|c[a-z]|[pP]\{[^}]*\}|[\s\S])/iy;
const SURROGATES = /\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}/y;
const GROUP = /\((?:\?(?::|=|!|<=|<!|<[^>]+>))?/y;

/** @throws Error for what is none, and for references back to a group, which nothing can match in a time that is bounded */
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
    if (this.#source[this.#at] === "?") this.#at++; // which of the ways to match comes first does not matter here
    const [text, first, comma, last] = found;
    if (text === "?") return { kind: "repeat", item, least: 0, most: 1 };
    const least = first === undefined ? (text === "+" ? 1 : 0) : Number(first);
    const most =
      first === undefined || (comma !== undefined && last === "") ? Number.POSITIVE_INFINITY : Number(last ?? first);
    return { kind: "repeat", item, least, most };
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
        // Without the flag u these may stand for themselves.
        return { kind: "one", source: /[{}\]]/.test(character) ? `\\${character}` : character };
      }
    }
  }

  #group(): Node {
    const opening = this.#take(GROUP)![0];
    if (this.#source[this.#at] === "?" && opening === "(") throw new Error("has a group of a kind that is not known");
    if (++this.#depth > DEEPEST) throw new Error(`has groups more than ${DEEPEST} levels deep`);
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
