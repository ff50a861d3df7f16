/** Sends the events of an execution that runs in this process, or of one at rest, to a client that reads them. */
import type { EventProducer, EventSink } from "../../lib/event-sink.ts";
import type { Store } from "../../storage/store.ts";
import type { Outline } from "../definition/definition.ts";
import type { JournalEntry } from "../journal/entries.ts";
import { type EventForm, eventForm } from "../journal/events.ts";
import { type Loaded, readEntries } from "../journal/load.ts";
import type { JournalState } from "../journal/state.ts";
import type { Execution } from "./execution.ts";

/** Entries at once for a reader who is far behind. */
const MAX_ENTRIES_PER_READ = 256;

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

/** The events after the one numbered `after` of an execution that runs here, until it comes to rest. */
export function followLive(
  execution: Execution,
  after: number,
  store: Store,
  followElsewhere: FollowElsewhere,
): EventProducer {
  return async (sink) => {
    const reader = openReader(execution.state, execution.definition.outline, after, sink);
    // A step may run for hours before there is anything to send.
    sink.onLeave(() => execution.notifyReaders());
    while (!sink.closed) {
      while (reader.index < execution.committed) {
        const { from, entries } = execution.log;
        const ready =
          reader.index < from
            ? // The reader is so far behind that the next entries are not in memory any more.
              (await readEntries(store, execution.state.start, from)).slice(
                reader.index,
                reader.index + MAX_ENTRIES_PER_READ,
              )
            : entries.slice(reader.index - from, execution.committed - from);
        await sendEntries(ready, reader);
        if (sink.closed) return;
      }
      if (execution.isAtRest) return;
      if (execution.abandoned) return (await followElsewhere(Math.max(after, reader.sequence)))(sink);
      await execution.progress();
    }
  };
}

/** The events of an execution at rest. */
export function followLoaded({ state, entries }: Loaded, outline: Outline, after: number): EventProducer {
  return (sink) => sendEntries(entries, openReader(state, outline, after, sink));
}

export function openReader(state: JournalState, outline: Outline, after: number, sink: EventSink): EventReader {
  sink.open();
  const form = eventForm(state);
  if (form.start === null) return { form, state, outline, after, sink, index: 0, sequence: 0 };
  if (after < 1) sink.send(form.start(state, outline), 1);
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
