/**
 * Reads JSON from what a model writes, while it writes it. Around the value there may be prose, code fences, and thoughts in
 * `<think>` tags; what is thought is no answer.
 */
import { parseExactly } from "../../lib/large-integers.ts";

// What stands around JSON in a model's answer: keeps track of code fences, and of thoughts in `<think>` tags.

const THINK = "<think>";
const THOUGHT = "</think>";
const FENCE = "```";
const MARKS = [THINK, THOUGHT, FENCE];

class Prose {
  /** Whether this is inside of a code fence. */
  fenced = false;
  #thinking = false;
  /** The beginning of a mark that has come so far. */
  #mark = "";

  /** Whether a value may begin with this character, here. */
  begins(code: number): boolean {
    if (this.#thinking || (code !== 0x7b && code !== 0x5b)) return false;
    this.#mark = "";
    return true;
  }

  /** Reads on. True at the end of thoughts: whatever came before was not the answer. */
  read(code: number): boolean {
    if (this.#mark === "" && code !== 0x3c && code !== 0x60) return false;
    const character = String.fromCharCode(code);
    const longer = this.#mark + character;
    this.#mark = MARKS.some((mark) => mark.startsWith(longer))
      ? longer
      : MARKS.some((mark) => mark.startsWith(character))
        ? character
        : "";
    if (!MARKS.includes(this.#mark)) return false;
    const mark = this.#mark;
    this.#mark = "";
    if (mark === THOUGHT) {
      this.#thinking = false;
      this.fenced = false;
      return true;
    }
    if (this.#thinking) return false;
    if (mark === THINK) this.#thinking = true;
    else this.fenced = !this.fenced;
    return false;
  }
}

/** The answer alone, if it stands by itself in a fence or after thoughts. */
function withoutMarks(text: string): string {
  const thought = text.lastIndexOf(THOUGHT);
  const answer = (thought === -1 ? text : text.slice(thought + THOUGHT.length)).trim();
  if (!answer.startsWith(FENCE) || !answer.endsWith(FENCE)) return answer;
  return answer.slice(answer.indexOf("\n") + 1, -FENCE.length).trim();
}

// Recognises one JSON array or object, character by character, and knows at each of them what has been valid so far.

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

class JsonScanner {
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

/** As for the bodies of requests. */
const MAX_DEPTH = 128;
/** A bracket of the prose may begin what looks like a value: so many characters are read again for each that came. */
const READ_AGAIN = 4;

/** The bracket that the value begins with; without one an array will do as well as an object. */
export type Bracket = "{" | "[";

/**
 * An incremental reader of arrays and objects. Each piece costs in proportion to its own length, however much came before: what
 * turns out to be prose is read again from its second character, as long as that stays within a multiple of what has come.
 */
export class PartialJson {
  /** Characters that were looked at so far. */
  steps = 0;
  readonly #bracket: Bracket | undefined;
  readonly #prose = new Prose();
  #value: JsonScanner | null = null;
  /** The text of the value that is being written, with what has come after it. */
  #text = "";
  /** The last complete values. */
  #outside: string | null = null;
  #fenced: string | null = null;
  #spare = 0;

  constructor(bracket?: Bracket) {
    this.#bracket = bracket;
  }

  /** Adds the next piece. */
  feed(piece: string): void {
    this.#spare += READ_AGAIN * piece.length;
    if (this.#value !== null) this.#text += piece;
    let source = piece;
    for (let index = 0; index < source.length; ) {
      this.steps++;
      const code = source.charCodeAt(index);
      if (this.#value === null && this.#prose.begins(code)) {
        this.#value = new JsonScanner(MAX_DEPTH);
        this.#text = source.slice(index);
      }
      const value = this.#value;
      if (value === null) {
        if (this.#prose.read(code)) this.#forget();
        index++;
        continue;
      }
      const verdict = value.read(code);
      if (verdict === "not json") {
        this.#value = null;
        if (this.#spare < value.at) continue;
        this.#spare -= value.at;
        source = this.#text.slice(1);
        index = 0;
        continue;
      }
      index++;
      if (verdict === "more") continue;
      if (verdict === "end") this.#complete(this.#text.slice(0, value.at));
      this.#value = null;
      this.#text = "";
    }
  }

  /** How long the value is that is being written, or that was complete last. */
  get length(): number {
    return this.#isWanted() ? this.#value!.safe : (this.complete()[0]?.length ?? 0);
  }

  /** The value so far, or undefined before there is one. Numbers and keys appear when they are complete. */
  snapshot(): unknown {
    if (this.#isWanted()) return parse(this.#text.slice(0, this.#value!.safe) + this.#value!.closing);
    const [text] = this.complete();
    return text === undefined ? undefined : parse(text);
  }

  /** The texts of the complete values that may be the answer, the likelier one first. */
  complete(): string[] {
    return [this.#outside, this.#fenced].filter((text) => text !== null);
  }

  #isWanted(): boolean {
    if (this.#value === null || this.#value.safe === 0) return false;
    return this.#bracket === undefined || this.#text[0] === this.#bracket;
  }

  #complete(text: string): void {
    if (this.#bracket !== undefined && text[0] !== this.#bracket) return;
    if (this.#prose.fenced) this.#fenced = text;
    else this.#outside = text;
  }

  #forget(): void {
    this.#outside = null;
    this.#fenced = null;
  }
}

function parse(text: string): unknown {
  try {
    return parseExactly(text);
  } catch {
    return undefined;
  }
}

/**
 * The JSON values that may be what a finished answer means, the likeliest first: all of it, else the last array or object
 * outside of code fences and the last one inside of any.
 *
 * @param bracket what the value must begin with, if it is known
 */
export function answersIn(text: string, bracket?: Bracket): unknown[] {
  const bare = withoutMarks(text);
  if (!bare.startsWith("{") && !bare.startsWith("[")) {
    const whole = parse(bare);
    if (whole !== undefined) return [whole];
  }
  const reader = new PartialJson(bracket);
  reader.feed(text);
  return reader.complete().map((each) => parseExactly(each));
}
