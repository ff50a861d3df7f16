/**
 * Reads JSON from what a model writes, while it writes it. Around the value there may be prose, code fences, and thoughts in
 * `<think>` tags; what is thought is no answer.
 */
import { parseExactly } from "../../lib/large-integers.ts";
import { JsonScanner } from "./json-scanner.ts";
import { Prose, withoutMarks } from "./prose.ts";

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
