/** Sends a client the events of an execution that runs in this process, or of a settled one. */
import type { EventProducer, EventSink } from "../../lib/event-sink.ts";
import type { Store } from "../../storage/store.ts";
import type { Outline } from "../definition/definition.ts";
import type { JournalEntry } from "../journal/entries.ts";
import { entriesBehind, incompleteJournal, JOURNAL_BEGIN, type JournalPosition, type Loaded } from "../journal/load.ts";
import { type EventForm, eventForm } from "../journal/record.ts";
import type { JournalState } from "../journal/state.ts";
import type { Execution } from "./execution.ts";

interface EventReader {
  readonly form: EventForm;
  readonly state: JournalState;
  readonly outline: Outline;
  /** Number of the last event that the client has already. */
  readonly after: number;
  readonly sink: EventSink;
  /** Entries sent or skipped so far, and the number of their last event. */
  index: number;
  sequence: number;
}

/** The events after one event of an execution that this process does not run any more. */
type FollowElsewhere = (after: number) => Promise<EventProducer>;

/** The events after the one numbered `after` of an execution that runs here, until it settles. */
export function followLive(
  execution: Execution,
  after: number,
  store: Store,
  followElsewhere: FollowElsewhere,
): EventProducer {
  return async (sink) => {
    // A step may run for hours before there is anything to send.
    sink.onLeave(() => execution.notifyReaders());
    const reader = await openReader(execution.state, execution.definition.outline, after, sink);
    let position = JOURNAL_BEGIN;
    while (!sink.closed) {
      while (reader.index < execution.committed) {
        const { from, entries } = execution.log;
        if (reader.index < from) position = await sendStored(execution, store, reader, position);
        else await sendEntries(entries.slice(reader.index - from, execution.committed - from), reader);
        if (sink.closed) return;
      }
      if (execution.isAtRest) return;
      if (execution.abandoned) return (await followElsewhere(Math.max(after, reader.sequence)))(sink);
      await execution.progress();
    }
  };
}

/**
 * For a reader that is so far behind that the next entries are no longer in memory: sends what is on disk until the rest is in
 * memory. Every row is read once, however often the reader falls behind.
 *
 * @param position how far the rows have been read
 * @returns how far they have been read now
 */
async function sendStored(
  execution: Execution,
  store: Store,
  reader: EventReader,
  position: JournalPosition,
): Promise<JournalPosition> {
  const { start } = execution.state;
  let last = position;
  for await (const read of entriesBehind(store, start, position)) {
    // Without entries from after the execution was resumed elsewhere.
    await sendEntries(read.entries.slice(reader.index - last.entries, execution.committed - last.entries), reader);
    if (reader.index >= read.position.entries) last = read.position;
    if (reader.sink.closed || reader.index >= execution.log.from) return last;
  }
  throw incompleteJournal(start.id);
}

/** The events of a settled execution. */
export function followLoaded(
  { state, entries }: Pick<Loaded, "state" | "entries">,
  outline: Outline,
  after: number,
): EventProducer {
  return async (sink) => sendEntries(entries, await openReader(state, outline, after, sink));
}

export async function openReader(
  state: JournalState,
  outline: Outline,
  after: number,
  sink: EventSink,
): Promise<EventReader> {
  sink.open();
  const form = eventForm(state);
  if (form.start === null) return { form, state, outline, after, sink, index: 0, sequence: 0 };
  if (after < 1) await sink.send(form.start(state, outline), 1);
  return { form, state, outline, after, sink, index: 0, sequence: 1 };
}

export async function sendEntries(ready: readonly JournalEntry[], reader: EventReader): Promise<void> {
  const { form, state, outline, after, sink } = reader;
  for (const entry of ready) {
    reader.index++;
    const count = form.counts[entry[0]];
    if (reader.sequence + count <= after || count === 0) {
      reader.sequence += count;
      continue;
    }
    for (const event of form.texts(entry, state, outline)) {
      if (++reader.sequence <= after) continue;
      const behind = sink.send(event, reader.sequence);
      if (behind !== undefined) await behind;
      if (sink.closed) return;
    }
  }
}
