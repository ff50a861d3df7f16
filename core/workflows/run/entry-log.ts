/** The newest entries of a running execution, kept in memory for readers of events. One who is further behind reads the store. */
import type { JournalEntry } from "../journal/entries.ts";

const MAX_LOG_ENTRIES = 1024;

export class EntryLog {
  entries: JournalEntry[] = [];
  /** Entries that came before those. */
  from = 0;

  /** How many entries there are, with those that are not kept any more. */
  get count(): number {
    return this.from + this.entries.length;
  }

  /** Forgets the older half when the log is long and that half is on disk. @param committed entries that are on disk */
  trim(committed: number): void {
    while (this.entries.length > MAX_LOG_ENTRIES && committed - this.from > MAX_LOG_ENTRIES / 2) {
      this.entries.splice(0, MAX_LOG_ENTRIES / 2);
      this.from += MAX_LOG_ENTRIES / 2;
    }
  }
}
