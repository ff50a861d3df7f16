/** The events of a response as server-sent events. */
import type { ResponseResource } from "./resource.ts";
import type { NumberedEvent, ResponseEvents } from "./response-events.ts";
import type { Said } from "./run-parts.ts";
import type { StreamTranslation } from "./run-sink.ts";

export const DONE = "data: [DONE]\n\n";

/** Each in one piece, since some clients lose one that is cut. @param after the number of the last one that the client has */
export function sseTexts(events: readonly NumberedEvent[], after = -1): string {
  let texts = "";
  for (const { type, number, json } of events) if (number > after) texts += `event: ${type}\ndata: ${json}\n\n`;
  return texts;
}

/** @param finish gives the whole resource once the run has ended */
export const responseStream = (events: ResponseEvents, finish: () => Promise<ResponseResource>): StreamTranslation => ({
  begin: () => sseTexts(events.begin()),
  write: (said: Said) => sseTexts(events.of(said)),
  end: async () => sseTexts(events.end(await finish())) + DONE,
  fail: (message, error) => sseTexts(events.fail(message, error)) + DONE,
});
