/** The newest entries of a running execution, in memory for readers of events. A reader that is further behind reads the store. */
import type { JournalEntry } from "../journal/entries.ts";

const MAX_LOG_ENTRIES = 1024;

export class EntryLog {
  entries: JournalEntry[] = [];
  /** Number of entries that were dropped from the start of the log. */
  from = 0;

  /** Number of all entries, including the dropped ones. */
  get count(): number {
    return this.from + this.entries.length;
  }

  /** Drops the older half when the log is long and that half is on disk. @param committed entries that are on disk */
  trim(committed: number): void {
    while (this.entries.length > MAX_LOG_ENTRIES && committed - this.from > MAX_LOG_ENTRIES / 2) {
      this.entries.splice(0, MAX_LOG_ENTRIES / 2);
      this.from += MAX_LOG_ENTRIES / 2;
    }
  }
}
