/** The events of a run in another form: its parts, given to a sink that writes them as it does for a run that is not kept. */
import type { AgentPart, PartSink } from "../agents/run/parts.ts";
import type { EventSink } from "../lib/event-sink.ts";

/** A sink for the raw events. What `form` makes of a part has the number of that part. */
export function partEvents(events: EventSink, form: (sink: EventSink) => PartSink): EventSink {
  let number = 0;
  const sink = form({
    open: () => events.open(),
    send: (json) => events.send(json, number),
    get closed() {
      return events.closed;
    },
    onLeave: (listener) => events.onLeave(listener),
  });
  return {
    open: () => events.open(),
    send(json, id = number + 1) {
      number = id;
      return sink.part(JSON.parse(json) as AgentPart);
    },
    get closed() {
      return events.closed;
    },
    onLeave: (listener) => events.onLeave(listener),
  };
}
