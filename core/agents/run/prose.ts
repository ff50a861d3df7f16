/** What stands around JSON in a model's answer: keeps track of code fences, and of thoughts in `<think>` tags. */

const THINK = "<think>";
const THOUGHT = "</think>";
const FENCE = "```";
const MARKS = [THINK, THOUGHT, FENCE];

export class Prose {
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
export function withoutMarks(text: string): string {
  const thought = text.lastIndexOf(THOUGHT);
  const answer = (thought === -1 ? text : text.slice(thought + THOUGHT.length)).trim();
  if (!answer.startsWith(FENCE) || !answer.endsWith(FENCE)) return answer;
  return answer.slice(answer.indexOf("\n") + 1, -FENCE.length).trim();
}
