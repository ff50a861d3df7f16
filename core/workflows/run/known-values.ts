/** Finds values that an execution has recorded already, so that its journal refers to them instead of repeating them. */
import { createHash } from "node:crypto";
import { MIN_SHARED_CHARACTERS } from "../journal/compact-text.ts";
import type { ValueSource } from "../journal/entries.ts";
import { entryJson } from "../journal/record.ts";
import type { JournalState } from "../journal/state.ts";

export class KnownValues {
  readonly #values: JournalState["values"];
  /** Sources of objects by identity. */
  readonly #objects = new Map<unknown, ValueSource>();
  /** Sources of long values by the hash of their JSON text; null until there is one to compare with. */
  #texts: Map<string, ValueSource> | null = null;
  /** The last text that was looked for: if it is unknown it will be added next. */
  #last: { readonly text: string; readonly hash: string } | null = null;

  constructor({ values }: Pick<JournalState, "values">) {
    this.#values = values;
    for (const [source, value] of values) this.#add(source, value);
  }

  /** The source of the same object (by identity). */
  sourceOf(value: unknown): ValueSource | undefined {
    return this.#objects.get(value);
  }

  /** The source of an equal value, if it is long. @param text the value as JSON */
  sourceOfEqual(text: string): ValueSource | undefined {
    return text.length < MIN_SHARED_CHARACTERS ? undefined : this.#textsKnown().get(this.#hash(text));
  }

  /** Must be called before each value is recorded. @param text the value as JSON */
  add(source: ValueSource, value: unknown, text: string): void {
    this.#add(source, value);
    if (text.length >= MIN_SHARED_CHARACTERS) this.#textsKnown().set(this.#hash(text), source);
    this.#last = null;
  }

  #hash(text: string): string {
    if (this.#last?.text !== text) this.#last = { text, hash: hash(text) };
    return this.#last.hash;
  }

  #add(source: ValueSource, value: unknown): void {
    if (typeof value === "object" && value !== null && !this.#objects.has(value)) this.#objects.set(value, source);
  }

  #textsKnown(): Map<string, ValueSource> {
    if (this.#texts !== null) return this.#texts;
    this.#texts = new Map();
    for (const [source, value] of this.#values) {
      const text = entryJson(value);
      if (text.length >= MIN_SHARED_CHARACTERS && !this.#texts.has(hash(text))) this.#texts.set(hash(text), source);
    }
    return this.#texts;
  }
}

const hash = (text: string): string => createHash("sha256").update(text).digest("base64");
