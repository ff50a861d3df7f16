/** The events of an execution that another process of a shared store runs, read from its journal. */
import { setTimeout as sleep } from "node:timers/promises";
import type { EventProducer } from "../../lib/event-sink.ts";
import type { Store } from "../../storage/store.ts";
import type { Outline } from "../definition/definition.ts";
import type { JournalEntry } from "../journal/entries.ts";
import { type FoundExecution, incomplete, readExecution, readJournal } from "../journal/load.ts";
import { parseEntries, parseOpen, parseRest } from "../journal/rows.ts";
import { applyEntry, initialState } from "../journal/state.ts";
import { beginReader, sendEntries } from "../run/follow.ts";

/** Milliseconds between two looks at the journal. */
const LOOK = 250;

/** The events from after the one numbered `after`, until it rests. @param found an execution that runs */
export function followRemoteExecution(
  store: Store,
  found: FoundExecution,
  outline: Outline,
  after: number,
): EventProducer {
  const { start } = found;
  return async (sink) => {
    const state = initialState(start);
    const reader = beginReader(state, outline, after, sink);
    const pass = async (entries: readonly JournalEntry[]) => {
      for (const entry of entries) applyEntry(state, entry);
      await sendEntries(entries, reader);
    };
    let passed = 0;
    let last: string | undefined;
    /** Revision of the record that the journal is ahead of. */
    let passedBy: number | undefined;
    await pass(firstOf(found));
    while (!sink.closed) {
      const now = await readExecution(store, start.number);
      // Its time on record is over.
      if (now === null) return;
      const rows = await readJournal(store, start.number, last);
      passed += rows.length;
      last = rows.at(-1)?.key ?? last;
      await pass(rows.flatMap((row) => parseEntries(row.value)));
      if (now.open === null && now.rest !== null) {
        const rest = parseRest(now.rest.value);
        if (passed === rest.rows) return pass(rest.tail);
        // Otherwise it was resumed between the two reads, and its tail is in the journal: its record is another soon.
        if (passed < rest.rows || now.rest.revision === passedBy) throw incomplete(start.id);
        passedBy = now.rest.revision;
      } else await sleep(LOOK, undefined, { ref: false });
    }
  };
}

function firstOf({ open, rest }: FoundExecution): readonly JournalEntry[] {
  const first = open === null ? null : parseOpen(open.value).first;
  return first ?? (rest === null ? [] : parseRest(rest.value).first);
}
