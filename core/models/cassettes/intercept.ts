/** Records the answers of providers, and replays them. Only whole answers are kept: a call that was aborted or cut off leaves nothing. */
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import type { Dispatcher } from "undici";
import { messageOf } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import {
  AnswerNotRecorded,
  type Cassette,
  type CassetteAnswer,
  type CassetteRequest,
  cleanAnswer,
  decodeChunk,
  fileName,
  readCassette,
  readRequest,
  requestKey,
  writeCassette,
} from "./cassette.ts";

// Answers from cassettes, chunk by chunk, in place of the providers. Nothing is sent.

// Describes how a request differs from the most similar recorded one.

interface Difference {
  readonly place: string;
  readonly sent: unknown;
  readonly recorded: unknown;
}

const MAX_NAMED = 3;
const MAX_VALUE_LENGTH = 80;

/** @param known the cassettes of all providers */
function describeDifference(request: CassetteRequest, known: Iterable<Cassette>): string {
  const ofProvider = [...known]
    .map((cassette) => cassette.request)
    .filter(({ provider }) => provider === request.provider);
  if (ofProvider.length === 0) return "nothing is recorded of this provider";
  const compared = ofProvider.map((recorded) => ({ recorded, differences: differencesOf("", request, recorded) }));
  const nearest = compared.reduce((best, each) => (distance(each) < distance(best) ? each : best));
  const named = nearest.differences.slice(0, MAX_NAMED).map(describe).join("; ");
  const more = nearest.differences.length - MAX_NAMED;
  return `of ${fileName(nearest.recorded)} it differs in ${named}${more > 0 ? `; and ${more} more` : ""}`;
}

/** The number of differences; another endpoint counts most. */
const distance = ({ differences }: { differences: readonly Difference[] }): number =>
  differences.length + (differences.some(({ place }) => place === "path") ? 1_000_000 : 0);

function differencesOf(place: string, sent: unknown, recorded: unknown): Difference[] {
  if (Array.isArray(sent) && Array.isArray(recorded)) {
    const length = Math.max(sent.length, recorded.length);
    return Array.from({ length }, (_, index) => index).flatMap((index) =>
      differencesOf(`${place}[${index}]`, sent[index], recorded[index]),
    );
  }
  if (isObject(sent) && isObject(recorded)) {
    const names = [...new Set([...Object.keys(sent), ...Object.keys(recorded)])];
    return names.flatMap((name) => differencesOf(place === "" ? name : `${place}.${name}`, sent[name], recorded[name]));
  }
  return sent === recorded ? [] : [{ place, sent, recorded }];
}

function describe({ place, sent, recorded }: Difference): string {
  if (recorded === undefined) return `${place}, which is not recorded: ${shown(sent, 0)}`;
  if (sent === undefined) return `${place}, which was not sent: ${shown(recorded, 0)}`;
  const from = firstDifference(String(sent), String(recorded));
  return `${place}: ${shown(sent, from)} was sent, ${shown(recorded, from)} is recorded`;
}

function firstDifference(left: string, right: string): number {
  let index = 0;
  while (index < left.length && left[index] === right[index]) index++;
  return index;
}

/** Shortens a value for a message: of a long text, the part where the difference is. */
function shown(value: unknown, from: number): string {
  if (typeof value !== "string") return cut(JSON.stringify(value) ?? String(value));
  const begin = value.length <= MAX_VALUE_LENGTH ? 0 : Math.max(0, from - 20);
  return `${begin > 0 ? "…" : ""}${cut(JSON.stringify(value.slice(begin, begin + MAX_VALUE_LENGTH + 1)))}`;
}

const cut = (text: string): string =>
  text.length > MAX_VALUE_LENGTH + 2 ? `${text.slice(0, MAX_VALUE_LENGTH)}…` : text;

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

/** Prompts are for the owner of the process alone, unless files are shared with intent. */
const PRIVATE_FOLDER = 0o700;
/** Most answers to one request: each further one writes the whole file again. */
const MAX_ANSWERS = 100;
/** Response headers that a provider's client acts on. Others change with each call, or reveal something about an account. */
const KEPT_HEADERS = ["content-type", "content-encoding", "retry-after", "retry-after-ms", "location"];

/**
 * Makes the interceptor between a provider and its connections, for `dispatcher.compose` of undici. `secrets` are those in the settings
 * of the provider.
 */
export interface CassetteIntercept {
  (provider: string, secrets?: readonly string[]): Dispatcher.DispatcherComposeInterceptor;
  /** Waits, at most some milliseconds, until answers that clients are reading have been recorded to their end. */
  idle?(timeout: number): Promise<void>;
}

/**
 * Makes the interceptor that records. The first answer to a request replaces all that an earlier recording has for it.
 *
 * @throws Error when the folder cannot be made
 */
export function recordCassettes(folder: string, logger: Logger): CassetteIntercept {
  // Made even if nothing will be recorded, so that the folder can be replayed.
  mkdirSync(folder, { recursive: true, mode: PRIVATE_FOLDER });
  /** Answers by request; the place of an answer is reserved when its request is sent. */
  const tapes = new Map<string, (CassetteAnswer | undefined)[]>();
  const running = new Set<Promise<void>>();
  const record: CassetteIntercept =
    (provider, secrets = []) =>
    (dispatch) =>
    (options, handler) => {
      const { request, hide } = readRequest(provider, options, secrets);
      const key = requestKey(request);
      const tape = tapes.get(key) ?? [];
      if (tape.length === MAX_ANSWERS) return dispatch(options, handler);
      tapes.set(key, tape);
      const place = tape.push(undefined) - 1;
      const keep: Keep = (status, headers, bytes) => {
        try {
          tape[place] = cleanAnswer(status, headers, bytes, hide);
          const answers = tape.filter((each) => each !== undefined);
          writeWhole(join(folder, fileName(request)), writeCassette({ request, answers }));
        } catch (error) {
          logger.error({ err: error }, `an answer of ${provider} could not be recorded: ${messageOf(error)}`);
        }
      };
      const recorder = new Recorder(handler, hide, keep);
      running.add(recorder.ended);
      void recorder.ended.then(() => running.delete(recorder.ended));
      return dispatch(options, recorder);
    };
  const idle = (timeout: number) =>
    Promise.race([Promise.all(running), sleep(timeout, undefined, { ref: false })]).then(() => undefined);
  return Object.assign(record, { idle });
}

/** Writes the file atomically: a reader finds the old one or the new one. */
function writeWhole(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true, mode: PRIVATE_FOLDER });
  writeFileSync(`${file}.new`, text, { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

type Keep = (status: number, headers: Readonly<Record<string, string>>, bytes: readonly Uint8Array[]) => void;

/** Passes everything on, and keeps a copy. */
class Recorder implements Dispatcher.DispatchHandler {
  readonly #handler: Dispatcher.DispatchHandler;
  readonly #hide: (text: string) => string;
  readonly #keep: Keep;
  readonly #chunks: Uint8Array[] = [];
  readonly ended: Promise<void>;
  #end!: () => void;
  #status = 0;
  #headers: Record<string, string> = {};

  constructor(handler: Dispatcher.DispatchHandler, hide: (text: string) => string, keep: Keep) {
    this.#handler = handler;
    this.#hide = hide;
    this.#keep = keep;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  onRequestStart(controller: Dispatcher.DispatchController, context: unknown): void {
    this.#handler.onRequestStart?.(controller, context);
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
    statusText?: string,
  ): void {
    this.#status = status;
    const kept = KEPT_HEADERS.flatMap((name) => [headers[name] ?? []].flat().map((value) => [name, this.#hide(value)]));
    this.#headers = Object.fromEntries(kept);
    this.#handler.onResponseStart?.(controller, status, headers, statusText);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#handler.onResponseData?.(controller, chunk);
  }

  onResponseEnd(controller: Dispatcher.DispatchController, trailers: Record<string, string | string[]>): void {
    this.#keep(this.#status, this.#headers, this.#chunks);
    this.#end();
    this.#handler.onResponseEnd?.(controller, trailers);
  }

  onResponseError(controller: Dispatcher.DispatchController, error: Error): void {
    this.#end();
    this.#handler.onResponseError?.(controller, error);
  }
}
