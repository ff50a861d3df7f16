import type { EventSink } from "../../lib/event-sink.ts";
import type { AgentPart, PartSink } from "../run/parts.ts";

/** Writes the parts of a run as events of a stream; subclasses decide on their format. */
export abstract class EventPartSink implements PartSink {
  protected readonly events: EventSink;

  constructor(events: EventSink) {
    this.events = events;
  }

  get closed(): boolean {
    return this.events.closed;
  }

  accepted(): void {
    this.events.open();
  }

  abstract part(part: AgentPart): Promise<void> | undefined;
}
