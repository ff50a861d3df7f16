/** JSON text that stores a long value only once, however often it occurs. */

/** Shorter values are written again: a reference would cost more than it saves. */
export const MIN_SHARED_CHARACTERS = 512;
/** Neighbouring pieces up to this length are joined. */
const SHORT_PIECE = 16 * 1024;

/** @see expand */
export interface CompactText {
  /** JSON text with `0` in place of each value that is repeated. */
  readonly text: string;
  /** For each repeated value: the position of its `0`, and the position and the length of the value itself. */
  readonly repeats: readonly number[];
}

/** Builds a text from start to end. */
export class CompactTextBuilder implements CompactText {
  text = "";
  readonly repeats: number[] = [];
  readonly #texts: ReadonlyMap<unknown, string> | undefined;
  readonly #known = new Map<unknown, { readonly from: number; readonly length: number; readonly text: string }>();

  /** @param texts values as JSON, of those that the caller has already */
  constructor(texts?: ReadonlyMap<unknown, string>) {
    this.#texts = texts;
  }

  add(text: string): this {
    this.text += text;
    return this;
  }

  /** Adds a value as JSON; the same object again becomes a reference to the first. */
  addValue(value: unknown): this {
    const known = this.#known.get(value);
    if (known === undefined) {
      const text = this.#texts?.get(value) ?? JSON.stringify(value) ?? "null";
      this.#known.set(value, { from: this.text.length, length: text.length, text });
      return this.add(text);
    }
    if (known.length < MIN_SHARED_CHARACTERS) return this.add(known.text);
    this.repeats.push(this.text.length, known.from, known.length);
    return this.add("0");
  }
}

/** The whole text in consecutive pieces, which share the memory of the compact one. */
export function expand({ text, repeats }: CompactText): string[] {
  if (repeats.length === 0) return [text];
  const pieces: string[] = [];
  let short = "";
  const add = (piece: string) => {
    if (piece.length <= SHORT_PIECE) short += piece;
    if (short !== "" && (short.length > SHORT_PIECE || piece.length > SHORT_PIECE)) {
      pieces.push(short);
      short = "";
    }
    if (piece.length > SHORT_PIECE) pieces.push(piece);
  };
  let done = 0;
  for (let at = 0; at < repeats.length; at += 3) {
    const [position, from, length] = repeats.slice(at, at + 3) as [number, number, number];
    add(text.slice(done, position));
    add(text.slice(from, from + length));
    done = position + 1;
  }
  add(text.slice(done));
  if (short !== "") pieces.push(short);
  return pieces;
}

/** Length of the whole text in characters. */
export function expandedLength({ text, repeats }: CompactText): number {
  let length = text.length;
  for (let at = 2; at < repeats.length; at += 3) length += repeats[at]! - 1;
  return length;
}
