/** The events of a response as server-sent events. */
import type { ResponseResource } from "./resource.ts";
import type { NumberedEvent, ResponseEvents } from "./response-events.ts";
import type { Said } from "./run-parts.ts";
import type { StreamTranslation } from "./run-sink.ts";

export const DONE = "data: [DONE]\n\n";

/** Each event as one line of data, because some clients lose one that is split. @param after number of the client's last event */
export function sseTexts(events: readonly NumberedEvent[], after = -1): string {
  let texts = "";
  for (const { type, number, json } of events) if (number > after) texts += `event: ${type}\ndata: ${json}\n\n`;
  return texts;
}

/** @param finish returns the whole resource once the run has ended */
export const responseStream = (events: ResponseEvents, finish: () => Promise<ResponseResource>): StreamTranslation => ({
  begin: () => sseTexts(events.begin()),
  write: (said: Said) => sseTexts(events.of(said)),
  end: async () => sseTexts(events.end(await finish())) + DONE,
  fail: (message, error) => sseTexts(events.fail(message, error)) + DONE,
});
