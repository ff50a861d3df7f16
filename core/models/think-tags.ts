/**
 * Turns the text in `<think>` at the start of an answer into reasoning. Some servers omit the opening tag, because their prompt ends
 * with it: then everything before `</think>` is reasoning.
 */
import type { LanguageModelV3StreamPart } from "@ai-sdk/provider";
import { isThenable } from "../lib/thenable.ts";
import type { PartBatch, PartSource } from "../plugin/plugin.ts";

type Part = LanguageModelV3StreamPart;
type TextPart = Extract<Part, { type: "text-start" | "text-delta" | "text-end" }>;

const OPEN = "<think>";
const CLOSE = "</think>";
/** Most text that is held back because it may turn out to be reasoning. */
const MAX_HELD_CHARACTERS = 256 * 1024;
/** Most white space that is held back before a tag: some models write nothing else. */
const MAX_LEAD_CHARACTERS = 1024;

/** What earlier answers of a model have shown: text is held back only while the model has not shown its opening tag. */
export class ThinkHabit {
  showsOpeningTag = false;
}

/**
 * start: nothing yet but white space and the beginning of a tag. thinking: after the opening tag. held: no tag has come, but the
 * closing one may. after: after the closing tag, before the text. text: everything is text.
 */
type State = "start" | "thinking" | "held" | "after" | "text";

/** The parts of `source`, with the reasoning separated from the text. */
export class ThinkTags implements PartSource {
  readonly #source: PartSource;
  readonly #habit: ThinkHabit;
  #state: State = "start";
  #id: string | null = null;
  /** Text that is not passed on yet: pieces of which only the last characters may begin a tag. */
  #held: string[] = [];
  #heldLength = 0;
  #out: Part[] = [];

  constructor(source: PartSource, habit: ThinkHabit) {
    this.#source = source;
    this.#habit = habit;
  }

  next(): PartBatch | null | Promise<PartBatch | null> {
    for (;;) {
      const batch = this.#source.next();
      if (isThenable(batch)) return this.#later(batch);
      const parts = this.#read(batch);
      if (parts === null || parts.length > 0) return parts;
    }
  }

  cancel(): void {
    this.#source.cancel();
  }

  async #later(pending: PromiseLike<PartBatch | null>): Promise<PartBatch | null> {
    const parts = this.#read(await pending);
    return parts === null || parts.length > 0 ? parts : this.next();
  }

  /** Null at the end; empty when the whole batch is held back. */
  #read(batch: PartBatch | null): PartBatch | null {
    if (batch !== null && this.#state === "text") return batch;
    if (batch === null) this.#settle();
    else for (const part of batch) this.#part(part);
    const out = this.#out;
    this.#out = [];
    return batch === null && out.length === 0 ? null : out;
  }

  #part(part: Part): void {
    if (
      this.#state !== "text" &&
      (part.type === "text-start" || part.type === "text-delta" || part.type === "text-end")
    ) {
      this.#textPart(part);
      return;
    }
    // The server separates reasoning itself, or the model is past its reasoning because it calls a tool.
    if (part.type === "reasoning-start" || part.type === "tool-input-start" || part.type === "tool-call")
      this.#release();
    this.#out.push(part);
  }

  #textPart(part: TextPart): void {
    if (part.type === "text-start") this.#id = part.id;
    else if (part.type === "text-delta") this.#add(part.delta);
    else if (this.#settle()) this.#out.push(part);
  }

  #add(delta: string): void {
    switch (this.#state) {
      case "start":
        this.#addAtStart(delta);
        return;
      case "thinking":
        this.#addThought(delta);
        return;
      case "held":
        this.#addHeld(delta);
        return;
      case "after": {
        const text = delta.trimStart();
        if (text !== "") this.#beginText(text);
        return;
      }
      case "text":
        this.#out.push({ type: "text-delta", id: this.#id!, delta });
    }
  }

  #addAtStart(delta: string): void {
    const text = this.#takeHeld() + delta;
    const begun = text.trimStart();
    if (begun.startsWith(OPEN)) {
      this.#habit.showsOpeningTag = true;
      this.#state = "thinking";
      this.#out.push({ type: "reasoning-start", id: this.#reasoningId });
      this.#addThought(begun.slice(OPEN.length));
      return;
    }
    if (OPEN.startsWith(begun) && text.length <= MAX_LEAD_CHARACTERS) {
      this.#hold(text);
      return;
    }
    if (this.#habit.showsOpeningTag) {
      this.#beginText(text);
      return;
    }
    this.#state = "held";
    this.#addHeld(text);
  }

  #addThought(delta: string): void {
    const text = this.#takeHeld() + delta;
    const close = text.indexOf(CLOSE);
    const end = close === -1 ? text.length - beginningOf(CLOSE, text) : close;
    if (end > 0) this.#out.push({ type: "reasoning-delta", id: this.#reasoningId, delta: text.slice(0, end) });
    if (close === -1) {
      this.#hold(text.slice(end));
      return;
    }
    this.#endThought(text.slice(close + CLOSE.length));
  }

  #addHeld(delta: string): void {
    const last = this.#held.pop() ?? "";
    const text = last + delta;
    const close = text.indexOf(CLOSE);
    if (close === -1) {
      // Only the last few characters are searched again with the next text: a long text is not read again and again.
      const cut = text.length - Math.min(text.length, CLOSE.length - 1);
      this.#held.push(text.slice(0, cut), text.slice(cut));
      this.#heldLength += delta.length;
      if (this.#heldLength > MAX_HELD_CHARACTERS) this.#release();
      return;
    }
    const thought = this.#takeHeld() + text.slice(0, close);
    const id = this.#reasoningId;
    this.#out.push({ type: "reasoning-start", id }, { type: "reasoning-delta", id, delta: thought });
    this.#endThought(text.slice(close + CLOSE.length));
  }

  #endThought(rest: string): void {
    this.#out.push({ type: "reasoning-end", id: this.#reasoningId });
    this.#state = "after";
    this.#add(rest);
  }

  #beginText(text: string): void {
    this.#state = "text";
    this.#out.push({ type: "text-start", id: this.#id! });
    if (text !== "") this.#out.push({ type: "text-delta", id: this.#id!, delta: text });
  }

  /** Passes on what was held back as text. */
  #release(): void {
    if (this.#state !== "start" && this.#state !== "held") return;
    const text = this.#takeHeld();
    if (this.#id !== null) this.#beginText(text);
  }

  /** Ends the holding back, at the end of the text or the answer. Returns whether a text has started. */
  #settle(): boolean {
    if (this.#state === "held") this.#habit.showsOpeningTag = true;
    this.#release();
    if (this.#state === "thinking") {
      const delta = this.#takeHeld();
      const id = this.#reasoningId;
      if (delta !== "") this.#out.push({ type: "reasoning-delta", id, delta });
      this.#out.push({ type: "reasoning-end", id });
      this.#state = "after";
    }
    return this.#state === "text";
  }

  #hold(text: string): void {
    this.#held = text === "" ? [] : [text];
    this.#heldLength = text.length;
  }

  #takeHeld(): string {
    const text = this.#held.join("");
    this.#hold("");
    return text;
  }

  get #reasoningId(): string {
    return `think-${this.#id}`;
  }
}

/** How many of the last characters of `text` are the beginning of `tag`. */
function beginningOf(tag: string, text: string): number {
  for (let length = Math.min(tag.length - 1, text.length); length > 0; length--)
    if (text.endsWith(tag.slice(0, length))) return length;
  return 0;
}
