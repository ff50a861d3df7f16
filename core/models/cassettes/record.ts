/** Writes what providers answer. Only whole answers count: a call that was aborted or cut leaves nothing. */
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import type { Dispatcher } from "undici";
import { messageOf } from "../../lib/errors.ts";
import {
  type CassetteAnswer,
  type CassetteChunk,
  encodeChunk,
  fileName,
  requestKey,
  writeCassette,
} from "./cassette.ts";
import { readRequest } from "./request.ts";

/** To one request: each more is a file that is written anew. */
const MAX_ANSWERS = 100;
/** Those that a client of the provider acts on. Others change with each call, or tell of an account. */
const KEPT_HEADERS = ["content-type", "content-encoding", "retry-after", "retry-after-ms", "location"];

/**
 * Gives what stands between a provider and its connections, as `dispatcher.compose` of undici takes it. `secrets` are those that the
 * provider is configured with.
 */
export interface CassetteIntercept {
  (provider: string, secrets?: readonly string[]): Dispatcher.DispatcherComposeInterceptor;
  /** Waits for answers that a client has, but whose end has not come yet, at most some milliseconds. */
  idle?(timeout: number): Promise<void>;
}

/**
 * The first answer to a request replaces what an earlier recording has of it.
 *
 * @returns what records a provider
 * @throws Error when the folder cannot be made
 */
export function recordCassettes(folder: string, logger: Logger): CassetteIntercept {
  // Also where nothing comes to be recorded, so that it can be replayed.
  mkdirSync(folder, { recursive: true });
  /** By request; a place is taken when the request is sent. */
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
      const keep = (answer: CassetteAnswer) => {
        tape[place] = answer;
        const answers = tape.filter((each) => each !== undefined);
        try {
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

/** A reader finds the old file or the new one. */
function writeWhole(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(`${file}.new`, text);
  renameSync(`${file}.new`, file);
}

/** Hands everything on, and keeps a copy. */
class Recorder implements Dispatcher.DispatchHandler {
  readonly #handler: Dispatcher.DispatchHandler;
  readonly #hide: (text: string) => string;
  readonly #keep: (answer: CassetteAnswer) => void;
  readonly #chunks: Uint8Array[] = [];
  readonly ended: Promise<void>;
  #end!: () => void;
  #status = 0;
  #headers: Record<string, string> = {};

  constructor(
    handler: Dispatcher.DispatchHandler,
    hide: (text: string) => string,
    keep: (answer: CassetteAnswer) => void,
  ) {
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
    this.#keep({ status: this.#status, headers: this.#headers, chunks: hiddenChunks(this.#chunks, this.#hide) });
    this.#end();
    this.#handler.onResponseEnd?.(controller, trailers);
  }

  onResponseError(controller: Dispatcher.DispatchController, error: Error): void {
    this.#end();
    this.#handler.onResponseError?.(controller, error);
  }
}

/** A secret may be cut in two by a chunk: the answer is then kept in one piece. */
function hiddenChunks(chunks: readonly Uint8Array[], hide: (text: string) => string): CassetteChunk[] {
  const encoded = chunks.map(encodeChunk).map((chunk) => (typeof chunk === "string" ? hide(chunk) : chunk));
  const whole = encodeChunk(Buffer.concat(chunks));
  if (typeof whole !== "string") return encoded;
  const hidden = hide(whole);
  const pieces = encoded.every((chunk) => typeof chunk === "string") ? encoded.join("") : null;
  return hidden === whole || hidden === pieces ? encoded : [hidden];
}
