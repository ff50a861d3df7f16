/**
 * A minimal client of chat completions: undici `dispatch` on a pool, a reader of lines, one JSON.parse per chunk.
 * No timeouts, no tools, no retries. `floor.ts` answers with what it reads, and a plugin passes it to Penstock.
 */
import { StringDecoder } from "node:string_decoder";
import type { Dispatcher, Pool } from "undici";

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
}

interface Chunk {
  choices: { delta: { content?: string }; finish_reason: string | null }[];
  usage?: Usage | null;
}

export interface Reader {
  /** Called when the provider has answered with 200. */
  accepted(): void;
  text(delta: string): void;
  finish(reason: string): void;
  usage(usage: Usage): void;
  /** Called when all events of one packet have been read. */
  pause(): void;
  end(): void;
  fail(error: Error): void;
}

const HEADERS = { "content-type": "application/json", authorization: "Bearer bench" };

/** Calls `POST PATH`. */
export function ask(pool: Pool, path: string, body: unknown, reader: Reader): Answer {
  const answer = new Answer(reader);
  pool.dispatch({ method: "POST", path, headers: HEADERS, body: JSON.stringify(body) }, answer);
  return answer;
}

export class Answer implements Dispatcher.DispatchHandler {
  readonly #reader: Reader;
  readonly #decoder = new StringDecoder("utf8");
  #rest = "";
  #controller: Dispatcher.DispatchController | undefined;
  #over = false;

  constructor(reader: Reader) {
    this.#reader = reader;
  }

  cancel(): void {
    if (this.#over) return;
    this.#over = true;
    this.#controller?.abort(new Error("cancelled"));
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#over) controller.abort(new Error("cancelled"));
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number): void {
    if (status === 200) this.#reader.accepted();
    else throw new Error(`the provider answers with ${status}`);
  }

  onResponseData(_controller: Dispatcher.DispatchController, bytes: Buffer): void {
    if (this.#over) return;
    const text = this.#rest + this.#decoder.write(bytes);
    let from = 0;
    for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", from)) {
      this.#line(text.slice(from, at));
      from = at + 1;
    }
    this.#rest = text.slice(from);
    this.#reader.pause();
  }

  onResponseEnd(): void {
    if (this.#over) return;
    this.#over = true;
    this.#reader.end();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#over) return;
    this.#over = true;
    this.#reader.fail(error);
  }

  #line(line: string): void {
    if (!line.startsWith("data: ") || line === "data: [DONE]") return;
    const { choices, usage } = JSON.parse(line.slice(6)) as Chunk;
    const choice = choices[0];
    if (choice?.delta.content) this.#reader.text(choice.delta.content);
    if (choice?.finish_reason) this.#reader.finish(choice.finish_reason);
    if (usage) this.#reader.usage(usage);
  }
}
