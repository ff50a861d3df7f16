import type { EventProducer, EventSink } from "../../lib/event-sink.ts";
import type { Store } from "../../storage/store.ts";
import type { Outline } from "../definition/definition.ts";
import { EVENT_COUNTS, type JournalEntry } from "../journal/entries.ts";
import { eventTexts, startEvent } from "../journal/events.ts";
import { type Loaded, readEntries } from "../journal/load.ts";
import type { JournalState } from "../journal/state.ts";
import type { Execution } from "./execution.ts";

/** Entries that a reader who is far behind holds at once. */
const PAGE = 256;

interface EventReader {
  readonly state: JournalState;
  readonly outline: Outline;
  /** Number of the last event that it has already. */
  readonly after: number;
  readonly sink: EventSink;
  /** Entries that it has passed, and the number of the last event of these. */
  index: number;
  sequence: number;
}

/** Goes on after an event with an execution that is not run by this process any more. */
type GoOn = (after: number) => Promise<EventProducer>;

/** The events of an execution that runs here, from after the event numbered `after`, until it rests. */
export function followLive(execution: Execution, after: number, store: Store, goOn: GoOn): EventProducer {
  return async (sink) => {
    const reader = openReader(execution.state, execution.definition.outline, after, sink);
    // A step may run for hours before there is anything to send.
    sink.onLeave(() => execution.notifyReaders());
    while (!sink.closed) {
      while (reader.index < execution.committed) {
        const { from, entries } = execution.log;
        const ready =
          reader.index < from
            ? // What a reader that is far behind misses is not in memory any more.
              (await readEntries(store, execution.state.start, from)).slice(reader.index, reader.index + PAGE)
            : entries.slice(reader.index - from, execution.committed - from);
        await sendEntries(ready, reader);
        if (sink.closed) return;
      }
      if (execution.isAtRest) return;
      if (execution.abandoned) return (await goOn(Math.max(after, reader.sequence)))(sink);
      await execution.progress();
    }
  };
}

/** The events of an execution that rests. */
export function followLoaded({ state, entries }: Loaded, outline: Outline, after: number): EventProducer {
  return (sink) => sendEntries(entries, openReader(state, outline, after, sink));
}

export function openReader(state: JournalState, outline: Outline, after: number, sink: EventSink): EventReader {
  sink.open();
  if (after < 1) sink.send(startEvent(state, outline), 1);
  return { state, outline, after, sink, index: 0, sequence: 1 };
}

export async function sendEntries(ready: readonly JournalEntry[], reader: EventReader): Promise<void> {
  const { state, outline, after, sink } = reader;
  for (const entry of ready) {
    reader.index++;
    const count = EVENT_COUNTS[entry[0]];
    if (reader.sequence + count <= after || count === 0) {
      reader.sequence += count;
      continue;
    }
    for (const event of eventTexts(entry, state, outline)) {
      if (++reader.sequence <= after) continue;
      const behind = sink.send(event, reader.sequence);
      if (behind !== undefined) await behind;
      if (sink.closed) return;
    }
  }
}
