/** Answers from cassettes, chunk by chunk, in place of the providers. Nothing is sent. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Dispatcher } from "undici";
import { messageOf } from "../../lib/errors.ts";
import { type Cassette, type CassetteAnswer, decodeChunk, readCassette, requestKey } from "./cassette.ts";
import { describeDifference } from "./difference.ts";
import { AnswerNotRecorded } from "./not-recorded.ts";
import type { CassetteIntercept } from "./record.ts";
import { readRequest } from "./request.ts";

/**
 * Makes the interceptor that replays. A request that is sent again gets the next of its answers; the last one is repeated.
 *
 * @throws Error when the folder cannot be read, or a file in it is not a cassette
 */
export function replayCassettes(folder: string): CassetteIntercept {
  const cassettes = readAll(folder);
  const sent = new Map<string, number>();
  return (provider, secrets = []) =>
    () =>
    (options, handler) => {
      const { request } = readRequest(provider, options, secrets);
      const key = requestKey(request);
      const { answers = [] } = cassettes.get(key) ?? {};
      const turn = sent.get(key) ?? 0;
      sent.set(key, turn + 1);
      const answer = answers[Math.min(turn, answers.length - 1)];
      const playback = new Playback(handler, answer);
      if (answer !== undefined) playback.begin();
      else {
        const what = `${request.method} ${request.path} of the provider ${provider}`;
        const how = describeDifference(request, cassettes.values());
        playback.abort(new AnswerNotRecorded(`${folder} has no answer to ${what}: ${how}`));
      }
      return true;
    };
}

function readAll(folder: string): Map<string, Cassette> {
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".yaml"));
  const read = files.sort().map((file): [string, Cassette] => {
    try {
      const cassette = readCassette(readFileSync(join(folder, file), "utf8"));
      return [requestKey(cassette.request), cassette];
    } catch (error) {
      throw new Error(`${join(folder, file)} is not a cassette: ${messageOf(error)}`);
    }
  });
  return new Map(read);
}

/** Plays one answer, one chunk per turn of the event loop, and pauses like a connection. */
class Playback implements Dispatcher.DispatchController {
  readonly #handler: Dispatcher.DispatchHandler;
  readonly #answer: CassetteAnswer | undefined;
  #next = -1;
  #isScheduled = false;
  #isOver = false;
  paused = false;
  reason: Error | null = null;

  constructor(handler: Dispatcher.DispatchHandler, answer: CassetteAnswer | undefined) {
    this.#handler = handler;
    this.#answer = answer;
  }

  get aborted(): boolean {
    return this.reason !== null;
  }

  begin(): void {
    this.#handler.onRequestStart?.(this, {});
    this.#schedule();
  }

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
    this.#schedule();
  }

  abort(reason: Error): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.reason = reason;
    // Not before the caller has returned, like a connection.
    setImmediate(() => this.#handler.onResponseError?.(this, reason));
  }

  #schedule(): void {
    if (this.#isScheduled || this.#isOver || this.paused) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      if (!this.#isOver && !this.paused) this.#play(this.#answer!);
      this.#schedule();
    });
  }

  #play({ status, headers, chunks }: CassetteAnswer): void {
    const index = this.#next++;
    if (index < 0) this.#handler.onResponseStart?.(this, status, headers);
    else if (index < chunks.length) this.#handler.onResponseData?.(this, decodeChunk(chunks[index]!));
    else {
      this.#isOver = true;
      this.#handler.onResponseEnd?.(this, {});
    }
  }
}
