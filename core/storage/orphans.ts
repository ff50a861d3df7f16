/** What processes that are gone have left: rows that name their process, and are there while it is at work. */
import type { Membership } from "./membership.ts";
import { allRows } from "./ranges.ts";
import { isShared, type Row, type Store } from "./store.ts";

const ROWS_PER_READ = 1_000;

interface Left {
  readonly store: Store;
  /** The processes that share the store; null when no other process uses it. */
  readonly membership: Membership | null;
  /** What the keys of these rows begin with. */
  readonly prefix: string;
  /** The process that a row names; undefined: none, so that it is nobody's. */
  processOf(row: Row): string | undefined;
  /** Ends what the process was at work on. */
  end(row: Row, process: string): Promise<void>;
  failed(error: unknown): void;
}

export class Orphans {
  readonly #left: Left;
  #looking = Promise.resolve();
  #isClosed = false;

  constructor(left: Left) {
    this.#left = left;
  }

  /** Looks now, and whenever a process is gone. On a store that no other process uses, all of it was left. */
  async start(): Promise<void> {
    const { store, membership, failed } = this.#left;
    await (isShared(store) ? this.look() : this.look(() => true));
    membership?.onGone(() => {
      this.#looking = this.#looking.then(() => this.look()).catch(failed);
    });
  }

  /** @param isGone undefined: no other process uses the store */
  async look(
    isGone: ((process: string) => boolean | Promise<boolean>) | undefined = this.#left.membership?.goneCheck(),
  ): Promise<void> {
    if (isGone === undefined || this.#isClosed) return;
    const { store, prefix, processOf, end } = this.#left;
    for await (const rows of allRows(store, { prefix }, ROWS_PER_READ))
      for (const row of rows) {
        if (this.#isClosed) return;
        const process = processOf(row);
        if (process !== undefined && (await isGone(process))) await end(row, process);
      }
  }

  close(): Promise<void> {
    this.#isClosed = true;
    return this.#looking;
  }
}
