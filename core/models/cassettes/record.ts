/** Records the answers of providers. Only whole answers are kept: a call that was aborted or cut off leaves nothing. */
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import type { Dispatcher } from "undici";
import { messageOf } from "../../lib/errors.ts";
import { type CassetteAnswer, cleanAnswer, fileName, readRequest, requestKey, writeCassette } from "./cassette.ts";

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
