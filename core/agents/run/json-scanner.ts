/** Recognises one JSON array or object, character by character, and knows at each of them what has been valid so far. */

type Mode =
  | "value"
  | "value-or-end"
  | "key"
  | "key-or-end"
  | "colon"
  | "in-key"
  | "in-text"
  | "literal"
  | "after"
  | "broken";

/**
 * `end`: the character was the last one. `not json`: it does not belong to a value, and nothing before it did for certain.
 * `broken end`: the last character of a value with a mistake in it.
 */
type Verdict = "more" | "end" | "not json" | "broken end";

const LITERAL = /^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;
const LITERAL_START = /^[-\dtfn]$/;
const ESCAPED = '"\\/bfnrtu';
const HEX = /^[\da-fA-F]$/;

export class JsonScanner {
  /** Where the next character stands, counted from the first bracket. */
  at = 0;
  /** The text up to here is valid JSON with `closing` after it. */
  safe = 0;
  readonly #maxDepth: number;
  #mode: Mode = "value";
  /** The brackets that are still to come, the innermost last; of a broken value only their number counts. */
  readonly #open: ("}" | "]")[] = [];
  #depth = 0;
  /** Whether there has been a complete member: prose in brackets has none. */
  #hasMembers = false;
  #literal = "";
  /** In a text: whether a backslash came, and how many digits of its `\u` are still to come. */
  #escaped = false;
  #digits = 0;
  /** In a broken value: whether this is inside of quotes. */
  #quoted = false;

  constructor(maxDepth: number) {
    this.#maxDepth = maxDepth;
  }

  /** What has to follow `safe`. */
  get closing(): string {
    return (this.#mode === "in-text" ? '"' : "") + this.#open.toReversed().join("");
  }

  read(code: number): Verdict {
    const verdict = this.#read(code);
    this.at++;
    return verdict;
  }

  #read(code: number): Verdict {
    const mode = this.#mode;
    if (mode === "in-text" || mode === "in-key") return this.#inText(code);
    if (mode === "broken") return this.#skip(code);
    const character = String.fromCharCode(code);
    if (mode === "literal") {
      if (!",]} \t\r\n".includes(character)) {
        this.#literal += character;
        return "more";
      }
      if (!LITERAL.test(this.#literal)) return this.#breaks(code);
      this.#valueEnds(this.at);
    }
    return this.#outside(character, code);
  }

  #outside(character: string, code: number): Verdict {
    const mode = this.#mode;
    const takesValue = mode === "value" || mode === "value-or-end";
    switch (character) {
      case " ":
      case "\t":
      case "\r":
      case "\n":
        return "more";
      case "{":
      case "[":
        return takesValue ? this.#opens(character, code) : this.#breaks(code);
      case "}":
      case "]":
        return this.#closes(character, code);
      case '"':
        if (!takesValue && mode !== "key" && mode !== "key-or-end") break;
        this.#mode = takesValue ? "in-text" : "in-key";
        if (takesValue) this.safe = this.at + 1;
        return "more";
      case ",":
        if (mode !== "after") break;
        this.#mode = this.#open.at(-1) === "}" ? "key" : "value";
        return "more";
      case ":":
        if (mode !== "colon") break;
        this.#mode = "value";
        return "more";
      default:
        if (!takesValue || !LITERAL_START.test(character)) break;
        this.#mode = "literal";
        this.#literal = character;
        return "more";
    }
    return this.#breaks(code);
  }

  #inText(code: number): Verdict {
    if (code < 0x20) return this.#breaks(code);
    if (this.#digits > 0) {
      if (!HEX.test(String.fromCharCode(code))) return this.#breaks(code);
      this.#digits--;
    } else if (this.#escaped) {
      const character = String.fromCharCode(code);
      if (!ESCAPED.includes(character)) return this.#breaks(code);
      this.#escaped = false;
      if (character === "u") this.#digits = 4;
    } else if (code === 0x5c) this.#escaped = true;
    else if (code === 0x22) {
      if (this.#mode === "in-key") this.#mode = "colon";
      else this.#valueEnds(this.at + 1);
      return "more";
    }
    if (this.#mode === "in-text" && !this.#escaped && this.#digits === 0) this.safe = this.at + 1;
    return "more";
  }

  #opens(bracket: "{" | "[", code: number): Verdict {
    if (this.#depth === this.#maxDepth) return this.#breaks(code, true);
    this.#depth++;
    this.#open.push(bracket === "{" ? "}" : "]");
    this.#mode = bracket === "{" ? "key-or-end" : "value-or-end";
    this.safe = this.at + 1;
    return "more";
  }

  #closes(bracket: "}" | "]", code: number): Verdict {
    const mode = this.#mode;
    const allowed = mode === "after" || mode === (bracket === "}" ? "key-or-end" : "value-or-end");
    if (!allowed || this.#open.at(-1) !== bracket) return this.#breaks(code);
    this.#open.pop();
    this.#depth--;
    this.#valueEnds(this.at + 1);
    return this.#depth === 0 ? "end" : "more";
  }

  #valueEnds(end: number): void {
    this.#mode = "after";
    this.safe = end;
    this.#hasMembers = true;
  }

  /** A value that has begun well is skipped to its end: what is inside of it is a part of it, and no value by itself. */
  #breaks(code: number, certain = this.#hasMembers): Verdict {
    if (!certain) return "not json";
    this.#quoted = this.#mode === "in-text" || this.#mode === "in-key";
    this.#mode = "broken";
    return this.#skip(code);
  }

  #skip(code: number): Verdict {
    if (this.#escaped) this.#escaped = false;
    else if (this.#quoted) {
      if (code === 0x5c) this.#escaped = true;
      else if (code === 0x22) this.#quoted = false;
    } else if (code === 0x22) this.#quoted = true;
    else if (code === 0x7b || code === 0x5b) this.#depth++;
    else if ((code === 0x7d || code === 0x5d) && --this.#depth === 0) return "broken end";
    return "more";
  }
}
