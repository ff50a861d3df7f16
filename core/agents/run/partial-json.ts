/**
 * Parses the JSON of a model while it is being written. Text before the first bracket (prose, a code fence) is skipped, and
 * so is whatever follows the last one.
 */

type Mode = "seek" | "value" | "key-or-end" | "key" | "colon" | "string" | "literal" | "after" | "done";

/** An incremental parser of one array or object. Each piece costs as much as it is long, however much came before. */
export class PartialJson {
  #text = "";
  #mode: Mode = "seek";
  /** The closing brackets that are still to come. */
  #open: string[] = [];
  #start = 0;
  /** The text up to here is valid JSON once the open brackets are closed. */
  #safe = 0;
  /** In a string: 0, or how many characters of an escape are still to come. */
  #escape = 0;

  /** Adds the next piece. */
  feed(piece: string): void {
    let index = this.#text.length;
    this.#text += piece;
    for (; index < this.#text.length && this.#mode !== "done"; index++) this.#step(this.#text[index]!, index);
  }

  /** The value so far, or undefined before there is one. Numbers and keys appear when they are complete. */
  snapshot(): unknown {
    if (this.#mode === "seek" || this.#safe === 0) return undefined;
    const quote = this.#mode === "string" ? '"' : "";
    return parse(this.#text.slice(this.#start, this.#safe) + quote + this.#open.toReversed().join(""));
  }

  /** The text of the value from its first to its last bracket; null while it is not complete. */
  complete(): string | null {
    return this.#mode === "done" ? this.#text.slice(this.#start, this.#safe) : null;
  }

  #step(character: string, index: number): void {
    switch (this.#mode) {
      case "string":
      case "key":
        this.#inString(character, index);
        return;
      case "literal":
        if (!",]} \t\r\n".includes(character)) return;
        this.#valueEnds(index);
        this.#outside(character, index);
        return;
      default:
        this.#outside(character, index);
    }
  }

  #inString(character: string, index: number): void {
    if (this.#escape > 0) {
      // The first character after the backslash decides how long the escape is.
      if (this.#text[index - 1] === "\\" && character === "u" && this.#escape === 1) this.#escape = 5;
      this.#escape -= 1;
    } else if (character === "\\") this.#escape = 1;
    else if (character === '"') {
      if (this.#mode === "key") this.#mode = "colon";
      else this.#valueEnds(index + 1);
      return;
    }
    if (this.#mode === "string" && this.#escape === 0) this.#safe = index + 1;
  }

  #outside(character: string, index: number): void {
    if (character === "{" || character === "[") this.#opens(character, index);
    else if (this.#mode === "seek" || " \t\r\n".includes(character)) return;
    else if (character === "}" || character === "]") this.#closes(index);
    else if (character === ",") this.#mode = this.#open.at(-1) === "}" ? "key-or-end" : "value";
    else if (character === ":") this.#mode = "value";
    else if (character === '"') this.#quote(index);
    else if (this.#mode === "value") this.#mode = "literal";
  }

  #opens(bracket: "{" | "[", index: number): void {
    if (this.#mode === "seek") this.#start = index;
    this.#open.push(bracket === "{" ? "}" : "]");
    this.#mode = bracket === "{" ? "key-or-end" : "value";
    this.#safe = index + 1;
  }

  #closes(index: number): void {
    this.#open.pop();
    this.#valueEnds(index + 1);
    if (this.#open.length === 0) this.#mode = "done";
  }

  #quote(index: number): void {
    if (this.#mode === "key-or-end") this.#mode = "key";
    else {
      this.#mode = "string";
      this.#safe = index + 1;
    }
  }

  #valueEnds(end: number): void {
    this.#mode = "after";
    this.#safe = end;
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The JSON value in a finished answer, or undefined when there is none. */
export function parseAnswer(text: string): unknown {
  const whole = parse(text);
  if (whole !== undefined) return whole;
  const reader = new PartialJson();
  reader.feed(text);
  const found = reader.complete();
  return found === null ? undefined : parse(found);
}
