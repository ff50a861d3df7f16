import type { EventProducer } from "../../core/lib/event-sink.ts";

export interface Collected {
  id: number;
  // biome-ignore lint/suspicious/noExplicitAny: whatever the test expects of it
  data: any;
}

/** Every event until the producer has ended. `each` is told of each one. */
export async function collectEvents(producer: EventProducer, each?: (event: Collected) => void): Promise<Collected[]> {
  const events: Collected[] = [];
  await producer({
    closed: false,
    opened: false,
    open() {},
    onLeave() {},
    send(json: string, id: number) {
      const event = { id, data: JSON.parse(json) };
      events.push(event);
      each?.(event);
      return undefined;
    },
  } as unknown as Parameters<EventProducer>[0]);
  return events;
}
