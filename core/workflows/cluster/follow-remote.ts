/** The events of an execution that another process of a shared store runs, read from its journal. */
import type { EventProducer } from "../../lib/event-sink.ts";
import { openExecutionKey } from "../../storage/keys.ts";
import type { Store } from "../../storage/store.ts";
import { Watch } from "../../storage/watch.ts";
import type { Outline } from "../definition/definition.ts";
import type { JournalEntry } from "../journal/entries.ts";
import { type FoundExecution, firstEntries, incompleteJournal, readExecution, readJournal } from "../journal/load.ts";
import { parseEntries } from "../journal/rows.ts";
import { applyEntry, initialState } from "../journal/state.ts";
import { openReader, sendEntries } from "../run/follow.ts";

/** Pause between two reads of the journal when the store does not notify of new entries. */
const JOURNAL_POLL_MS = 250;

/**
 * The events after the one numbered `after`, until the execution settles.
 *
 * @param found a running execution
 * @param pollInterval milliseconds
 */
export function followRemoteExecution(
  store: Store,
  found: FoundExecution,
  outline: Outline,
  after: number,
  pollInterval = JOURNAL_POLL_MS,
): EventProducer {
  const { start } = found;
  return async (sink) => {
    const state = initialState(start);
    const reader = await openReader(state, outline, after, sink);
    const send = async (entries: readonly JournalEntry[]) => {
      for (const entry of entries) applyEntry(state, entry);
      await sendEntries(entries, reader);
    };
    let rowsSent = 0;
    let last: string | undefined;
    /** Revision of a record row that counts fewer journal rows than were read. */
    let outdated: number | undefined;
    const watch = new Watch(store, openExecutionKey(start.number));
    try {
      await send(firstEntries(found));
      while (!sink.closed) {
        const now = await readExecution(store, start.number, start.id);
        // Retention has removed the execution.
        if (now === null) return;
        const rows = await readJournal(store, start.number, last);
        rowsSent += rows.length;
        last = rows.at(-1)?.key ?? last;
        await send(rows.flatMap((row) => parseEntries(row.value)));
        const { record: rest, recordRow } = now;
        if (now.open === null && rest !== null) {
          if (rowsSent === rest.rows) return await send(rest.tail);
          // There are more rows than the record counts: the execution was resumed between the two reads, so a new record will follow.
          if (rowsSent < rest.rows || recordRow!.revision === outdated) throw incompleteJournal(start.id);
          outdated = recordRow!.revision;
        } else await watch.wait(pollInterval);
      }
    } finally {
      watch.end();
    }
  };
}
