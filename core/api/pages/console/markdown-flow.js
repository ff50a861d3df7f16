/** Markdown that still grows: what is complete is made once, and only the last block is made again, at most once a frame. */
import { element, replace } from "./elements.js";
import { markdownBlocks } from "./markdown.js";

/** A block that is longer stays a plain text until it is complete: to make it again and again would cost too much. */
const LONGEST_LIVE = 20_000;

/** @param {string} text @returns {HTMLElement} of a text that is complete */
export const markdown = (text) => element("div", { class: "said markdown" }, ...markdownBlocks(text));

export class MarkdownFlow {
  #done = element("div");
  #live = element("div");
  body = element("div", { class: "said markdown" }, this.#done, this.#live);
  #rest = "";
  #isScheduled = false;

  /** @param {string} delta */
  append(delta) {
    this.#rest += delta;
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => this.#draw());
  }

  /** The text is complete. */
  end() {
    this.#done.append(...markdownBlocks(this.#rest));
    this.#rest = "";
    replace(this.#live);
  }

  #draw() {
    this.#isScheduled = false;
    const length = completeLength(this.#rest);
    if (length > 0) {
      this.#done.append(...markdownBlocks(this.#rest.slice(0, length)));
      this.#rest = this.#rest.slice(length);
    }
    if (this.#rest.length > LONGEST_LIVE) replace(this.#live, this.#rest);
    else replace(this.#live, ...markdownBlocks(this.#rest));
  }
}

/** Up to the last empty line that is not within code. @param {string} text */
function completeLength(text) {
  let length = 0;
  let at = 0;
  let isCode = false;
  for (const line of text.split("\n")) {
    if (/^ {0,3}(?:```|~~~)/.test(line)) isCode = !isCode;
    at += line.length + 1;
    if (line.trim() === "" && !isCode && at <= text.length) length = at;
  }
  return length;
}
