/**
 * Most deltas of one answer differ only in their text: such an event is recognised by what surrounds the text, and need not be
 * parsed. If an answer is different, no event is recognised.
 */
import type { WireChunk } from "./wire.ts";

/** Does not occur in what a provider sends, and needs no escaping in JSON. */
const MARK = "\u2063penstock\u2063";
const FIELD = '"content":';
/** Learning takes a second parse, and would never succeed with servers that add something random to each event. */
const MAX_ATTEMPTS = 3;

/** Characters that end a JSON string, or stand for others. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON does not allow them either
const NOT_PLAIN = /["\\\u0000-\u001f]/;

export class RepeatedDelta {
  #before = "";
  #after = "";
  #attempts = 0;

  /** The text of the event, if the event has the learned form; null if it has to be parsed. */
  read(data: string): string | null {
    const before = this.#before;
    const end = data.length - this.#after.length;
    if (before === "" || end <= before.length) return null;
    // Compares slices, because `startsWith` and `endsWith` take four times as long.
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
    // Proves that what is between them is the text of the delta: any other text would be read in the same place.
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
