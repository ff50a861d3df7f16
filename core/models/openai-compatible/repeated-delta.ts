/**
 * The deltas of one answer mostly differ in nothing but their text: such an event is recognised by what stands before and after
 * the text, and need not be parsed. Where an answer is not like that, nothing is recognised.
 */
import type { WireChunk } from "./wire.ts";

/** Does not occur in what a provider sends, and needs no escape. */
const MARK = "\u2063penstock\u2063";
const FIELD = '"content":';
/** Learning takes another parse: some servers add something random to each event. */
const MAX_ATTEMPTS = 3;

/** What ends a JSON string, or makes it more than its characters. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON does not allow them either
const NOT_PLAIN = /["\\\u0000-\u001f]/;

export class RepeatedDelta {
  #before = "";
  #after = "";
  #attempts = 0;

  /** The text of the event, if the event is like the one that was learned; null if it has to be parsed. */
  read(data: string): string | null {
    const before = this.#before;
    const end = data.length - this.#after.length;
    if (before === "" || end <= before.length) return null;
    // Slices, since `startsWith` and `endsWith` take four times as long.
    if (data.slice(0, before.length) !== before || data.slice(end) !== this.#after) return null;
    const text = data.slice(before.length, end);
    return NOT_PLAIN.test(text) ? null : text;
  }

  /** @param data an event that adds `text` to the answer, and does nothing else */
  learn(data: string, text: string): void {
    if (this.#attempts === MAX_ATTEMPTS) return;
    this.#attempts++;
    const literal = JSON.stringify(text);
    const field = data.indexOf(FIELD);
    const start = data.indexOf(literal, field + FIELD.length);
    if (field === -1 || start === -1) return;
    const before = data.slice(0, start + 1);
    const after = data.slice(start + literal.length - 1);
    // Proof that what is between them is the text of the delta: any other would be read there just so.
    if (contentOf(`${before}${MARK}${after}`) !== MARK) return;
    this.#before = before;
    this.#after = after;
  }
}

function contentOf(data: string): unknown {
  try {
    return (JSON.parse(data) as WireChunk).choices?.[0]?.delta?.content;
  } catch {
    return null;
  }
}
