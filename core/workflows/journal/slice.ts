/** Keeps the event loop responsive while an execution does much at once: after a slice of work it yields. */
import { nextTurn } from "../../lib/event-loop-turns.ts";

/** Characters of journal entries, used as a measure of the work that produced them. */
const WORK_IN_SLICE = 64 * 1024;
/** The minimum that is counted for an entry. */
const WORK_OF_ENTRY = 512;

export class Slice {
  #work = 0;
  #next: Promise<void> | null = null;

  /** @param characters length of an entry that was appended */
  add(characters: number): void {
    this.#work += WORK_OF_ENTRY + characters;
  }

  /** Whether to wait for `next` before continuing. Check again after waiting: others may have used up the next slice. */
  get isOver(): boolean {
    return this.#work > WORK_IN_SLICE;
  }

  /** Resolves at the start of the next slice, in a later turn of the event loop. */
  next(): Promise<void> {
    this.#next ??= nextTurn().then(() => {
      this.#work = 0;
      this.#next = null;
    });
    return this.#next;
  }
}

/** Values as JSON, with others' turns in between. @param known of those that the caller has already */
export async function valuesInSlices<V>(
  values: Iterable<V>,
  slice = new Slice(),
  known?: ReadonlyMap<V, string>,
): Promise<Map<V, string>> {
  const texts = new Map(known);
  for (const value of new Set(values)) {
    if (texts.has(value)) continue;
    while (slice.isOver) await slice.next();
    const text = JSON.stringify(value) ?? "null";
    texts.set(value, text);
    slice.add(text.length);
  }
  return texts;
}
