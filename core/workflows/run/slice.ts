/** Keeps the event loop free while an execution does much at once: after a slice of work everybody else has a turn. */
import { nextTurn } from "../../lib/event-loop-turns.ts";

/** Characters of journal entries, which stand for the work that made them. */
const WORK_IN_SLICE = 64 * 1024;
/** What an entry counts for at least. */
const WORK_OF_ENTRY = 512;

export class Slice {
  #work = 0;
  #next: Promise<void> | null = null;

  /** @param characters of an entry that was appended */
  add(characters: number): void {
    this.#work += WORK_OF_ENTRY + characters;
  }

  /** Whether to wait for `next` before going on. Whoever has waited asks again: others may have used up the next slice. */
  get isOver(): boolean {
    return this.#work > WORK_IN_SLICE;
  }

  /** Resolves with the begin of the next slice, in a later turn of the event loop. */
  next(): Promise<void> {
    this.#next ??= nextTurn().then(() => {
      this.#work = 0;
      this.#next = null;
    });
    return this.#next;
  }
}
