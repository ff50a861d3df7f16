import type { EventSink } from "../../lib/event-sink.ts";
import type { AgentPart, PartSink } from "../run/parts.ts";

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
