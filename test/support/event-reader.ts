/** A client that reads a stream as it comes, and leaves when it likes. */
import { type ClientRequest, type IncomingHttpHeaders, request } from "node:http";
import { StringDecoder } from "node:string_decoder";
import { parseEvents, type SentEvent } from "./service.ts";

/** How long to wait for what must happen; only a hang takes so long. */
const HANG_MS = 240_000;

interface PostOptions {
  /** Do not read the body until `resume` is called. */
  paused?: boolean;
}

/** One POST, or a GET where there is no body, on a connection of its own. */
export class EventReader {
  /** The body so far; of a stream of events those that came wholly, and the rest when nothing more comes. */
  text = "";
  #rest = "";
  /** The last character of the rest: a large one is not searched again with every chunk. */
  #tail = "";
  /** Bytes read. */
  bytes = 0;
  status = 0;
  headers: IncomingHttpHeaders = {};
  /** The reply has ended in order. */
  ended = false;
  /** The connection is over, whatever ended it. */
  closed = false;
  /** Keep nothing but the count of bytes, and the tail. */
  forgetful = false;
  readonly #request: ClientRequest;
  #resume: () => void = () => undefined;
  #changed: (() => void)[] = [];

  constructor(url: string, body?: unknown, { paused = false }: PostOptions = {}) {
    const method = body === undefined ? "GET" : "POST";
    const type = body === undefined ? {} : { "content-type": "application/json" };
    this.#request = request(url, { method, headers: type, agent: false });
    this.#request.on("response", (response) => {
      const isEvents = /^text\/event-stream/.test(response.headers["content-type"] ?? "");
      // A character of several bytes may come in two chunks.
      const decoder = new StringDecoder();
      this.status = response.statusCode ?? 0;
      this.headers = response.headers;
      response.on("data", (chunk: Buffer) => {
        this.bytes += chunk.length;
        const text = this.#tail + decoder.write(chunk);
        const before = this.#rest.length - this.#tail.length;
        const last = text.lastIndexOf("\n\n");
        this.#rest += text.slice(this.#tail.length);
        this.#tail = text.slice(-1);
        this.#take(!isEvents ? undefined : last < 0 ? 0 : before + last + 2);
      });
      response.on("end", () => {
        this.ended = response.complete;
        this.#take();
      });
      response.on("error", () => undefined);
      if (paused) response.pause();
      this.#resume = () => response.resume();
      this.#notify();
    });
    this.#request.on("error", () => undefined);
    this.#request.on("close", () => {
      this.closed = true;
      this.#take();
    });
    this.#request.end(body === undefined ? undefined : JSON.stringify(body));
  }

  /** Every event that came so far, its data parsed. */
  get events(): Record<string, unknown>[] {
    return this.sent.filter(({ data }) => data !== "[DONE]").map(({ data }) => JSON.parse(data));
  }

  get sent(): SentEvent[] {
    return parseEvents(this.text.slice(0, this.text.lastIndexOf("\n\n") + 2));
  }

  resume(): void {
    this.#resume();
  }

  /** Ends the connection without a word. */
  leave(): void {
    this.#request.destroy();
  }

  head(): Promise<void> {
    return this.until(() => this.status !== 0);
  }

  end(): Promise<void> {
    return this.until(() => this.ended);
  }

  /** Waits until `holds` does. Throws when the connection is over before, or nothing happens for long. */
  async until(holds: () => boolean): Promise<void> {
    const deadline = Date.now() + HANG_MS;
    while (!holds()) {
      const left = deadline - Date.now();
      if (this.closed || left <= 0) {
        throw new Error(
          `${this.closed ? "the connection ended" : "nothing came"} after ${JSON.stringify(this.text.slice(-500))}`,
        );
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#changed.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  /** @param end of what came wholly */
  #take(end = this.#rest.length): void {
    if (end > 0) {
      this.text = (this.forgetful ? this.text.slice(-4096) : this.text) + this.#rest.slice(0, end);
      this.#rest = this.#rest.slice(end);
      if (this.#rest === "") this.#tail = "";
    }
    this.#notify();
  }

  #notify(): void {
    for (const change of this.#changed.splice(0)) change();
  }
}

/** Polls until `holds` does: for what tells nobody when it changes. */
export async function eventually(holds: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const deadline = Date.now() + HANG_MS;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`${what} did not happen`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
