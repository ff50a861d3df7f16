/** Hands what a run says to a translation, for a reply that is sent whole or as a stream. */

import type { AgentPart, PartSink } from "../agents/run/parts.ts";
import type { ProtocolRun } from "../agents/run-requests.ts";
import { EVENT_HEADERS } from "../http/event-writer.ts";
import type { TextStream } from "../http/route.ts";
import { unavailable } from "../lib/errors.ts";
import type { TextSink } from "../lib/event-sink.ts";
import { notAgain } from "./errors.ts";
import { RunReader, type Said } from "./run-parts.ts";

/** Writes the stream of one run. */
export interface StreamTranslation {
  /** The text that begins the stream. */
  begin(): string;
  /** The text for a piece of output; empty when there is none. */
  write(said: Said): string;
  /** The text after a run that has succeeded. */
  end(): string | Promise<string>;
  /** The text after a run that has failed. @param error undefined when the run was ended from outside */
  fail(message: string, error: unknown): string;
}

/** An SSE comment: clients skip it. */
export const HEARTBEAT = ": \n\n";

/**
 * @param storing of a run whose end is to be stored: the runs that a request hears to the end although its client leaves. One request for each
 *   run is enough.
 */
export function streamTranslated(run: ProtocolRun, translation: StreamTranslation, storing?: Set<string>): TextStream {
  let failure: unknown;
  return {
    status: 200,
    headers: EVENT_HEADERS,
    opensLate: true,
    heartbeat: HEARTBEAT,
    failure: (message) => translation.fail(message, failure),
    async stream(sink) {
      const goesOn = storing?.has(run.messageId) === false;
      if (goesOn) storing.add(run.messageId);
      try {
        await run.start(new StreamSink(sink, run, translation, goesOn));
        await sink.send(await translation.end());
      } catch (error) {
        failure = error;
        throw error;
      } finally {
        if (goesOn) storing.delete(run.messageId);
      }
    },
  };
}

class StreamSink implements PartSink {
  readonly #sink: TextSink;
  readonly #reader: RunReader;
  readonly #translation: StreamTranslation;

  readonly #goesOn: boolean;

  constructor(sink: TextSink, run: ProtocolRun, translation: StreamTranslation, goesOn: boolean) {
    this.#sink = sink;
    this.#reader = new RunReader(run);
    this.#translation = translation;
    this.#goesOn = goesOn;
  }

  get closed(): boolean {
    return this.#sink.closed && !this.#goesOn;
  }

  onLeave(listener: () => void): void {
    this.#sink.onLeave(listener);
  }

  accepted(): void {
    void this.#sink.send(this.#translation.begin());
  }

  part(part: AgentPart): Promise<void> | undefined {
    let text = "";
    for (const said of this.#reader.read(part)) text += this.#translation.write(said);
    return text === "" || this.#sink.closed ? undefined : this.#sink.send(text);
  }
}

/** Runs to the end, and calls `hear` with all output. @throws ServiceError `unavailable` when it was aborted */
export async function hearRun(run: ProtocolRun, hear: (said: Said) => void): Promise<void> {
  const reader = new RunReader(run);
  let aborted = false;
  let mayHaveActed = false;
  try {
    await run.start({
      closed: false,
      accepted() {
        mayHaveActed = true;
      },
      part(part) {
        if (part.type === "abort") aborted = true;
        for (const said of reader.read(part)) hear(said);
        return undefined;
      },
    });
  } catch (error) {
    throw mayHaveActed ? notAgain(error) : error;
  }
  if (aborted) throw notAgain(unavailable("the run was stopped"));
}
