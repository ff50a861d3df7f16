/**
 * One answer as it arrives: a stream of events, or a whole completion if the server does not stream. What arrives in one chunk from
 * the network becomes one batch.
 */
import { StringDecoder } from "node:string_decoder";
import type { LanguageModelV3StreamPart, PartBatch, PartSource } from "../../plugin/plugin.ts";
import { ChatParts, parseEvent } from "./chat-parts.ts";
import { MAX_ERROR_CHARACTERS, refusedCall } from "./refused-call.ts";
import type { ThoughtName } from "./request-body.ts";
import type { Receiver, ResponseHeaders, UpstreamCall } from "./upstream-call.ts";

// Reads server-sent events from chunks that are split anywhere; skips a byte order mark. Only `data` fields are read.

const LINE_FEED = 10;
const SPACE = 32;
const COLON = 58;
const FIELD = "data";

export class EventReader {
  readonly #receive: (data: string) => void;
  readonly #decoder = new StringDecoder("utf8");
  /** The pieces of an incomplete line: joined only once, so that a long line costs time in proportion to its length. */
  #pieces: string[] = [];
  /** The data of an incomplete event. */
  #data: string | null = null;
  /** Whether the last line ended with a carriage return: then a following line feed belongs to it. */
  #afterReturn = false;

  /** @param receive called with the data of each event */
  constructor(receive: (data: string) => void) {
    this.#receive = receive;
  }

  push(chunk: Buffer): void {
    this.#read(this.#decoder.write(chunk));
  }

  /** The data of a last event without a closing empty line, which some servers omit; null if there is none. */
  end(): string | null {
    this.#read(this.#decoder.end());
    if (this.#pieces.length > 0) this.#endLine("", 0, 0);
    const data = this.#data;
    this.#data = null;
    return data;
  }

  #read(text: string): void {
    if (text === "") return;
    let from = 0;
    if (this.#afterReturn && text.charCodeAt(from) === LINE_FEED) from++;
    this.#afterReturn = false;
    let feed = text.indexOf("\n", from);
    let carriage = text.indexOf("\r", from);
    while (feed !== -1 || carriage !== -1) {
      const end = carriage === -1 || (feed !== -1 && feed < carriage) ? feed : carriage;
      this.#endLine(text, from, end);
      from = end + 1;
      if (end === carriage) {
        if (feed === from) from++;
        else if (from === text.length) this.#afterReturn = true;
        carriage = text.indexOf("\r", from);
      }
      if (feed !== -1 && feed < from) feed = text.indexOf("\n", from);
    }
    if (from < text.length) this.#pieces.push(text.slice(from));
  }

  #endLine(text: string, from: number, end: number): void {
    if (this.#pieces.length === 0) {
      this.#line(text, from, end);
      return;
    }
    this.#pieces.push(text.slice(from, end));
    const line = this.#pieces.join("");
    this.#pieces = [];
    this.#line(line, 0, line.length);
  }

  #line(text: string, from: number, end: number): void {
    if (from === end) {
      const data = this.#data;
      this.#data = null;
      if (data !== null) this.#receive(data);
      return;
    }
    if (!text.startsWith(FIELD, from)) return;
    let start = from + FIELD.length;
    if (start < end) {
      if (text.charCodeAt(start) !== COLON) return;
      start++;
      if (start < end && text.charCodeAt(start) === SPACE) start++;
    }
    const value = text.slice(start, end);
    this.#data = this.#data === null ? value : `${this.#data}\n${value}`;
  }
}

/** How far to read ahead of a slow reader before the connection is paused (back-pressure). */
const MAX_BUFFERED_BYTES = 64 * 1024;

interface Form {
  readonly url: string;
  readonly metadataKey: string;
  readonly raw: boolean;
  readonly learned: { thoughts: ThoughtName };
}

/** Collects text that can only be parsed when it is complete. */
class Whole {
  readonly #decoder = new StringDecoder("utf8");
  readonly #pieces: string[] = [];
  length = 0;

  push(chunk: Buffer): void {
    const text = this.#decoder.write(chunk);
    this.length += text.length;
    this.#pieces.push(text);
  }

  end(): string {
    return this.#pieces.join("") + this.#decoder.end();
  }
}

export class ChatAnswer implements Receiver, PartSource {
  readonly #form: Form;
  readonly #parts: ChatParts;
  #call: UpstreamCall | null = null;
  #accepted!: () => void;
  #refused!: (thrown: unknown) => void;
  /** Settles when the provider has accepted or refused the call. */
  readonly opened = new Promise<void>((resolve, reject) => {
    this.#accepted = resolve;
    this.#refused = reject;
  });
  #status = 0;
  #headers: ResponseHeaders = {};
  #events: EventReader | null = null;
  #whole: Whole | null = null;
  /** Whether `#whole` may be a completion; otherwise it is an error, of which the beginning is enough. */
  #mayBeAnswer = false;
  #buffered = 0;
  #ended = false;
  #failure: { thrown: unknown } | null = null;
  #waiting: { resolve(batch: PartBatch | null): void; reject(thrown: unknown): void } | null = null;

  constructor(form: Form, first: LanguageModelV3StreamPart) {
    this.#form = form;
    this.#parts = new ChatParts(form, first);
  }

  /** Starts the call whose answer this is. */
  follow(call: UpstreamCall): void {
    this.#call = call;
    call.start();
  }

  next(): PartBatch | null | Promise<PartBatch | null> {
    if (this.#parts.length > 0) return this.#take();
    if (this.#failure !== null) throw this.#failure.thrown;
    if (this.#ended) return null;
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#buffered = 0;
      this.#call?.resume();
    });
  }

  cancel(): void {
    // After the last event the server only has to close the answer, and its connection can be used again.
    const running = !this.#ended;
    this.#ended = true;
    this.#failure = null;
    this.#parts.take();
    this.#deliver();
    if (running) this.#call?.fail(new Error("the reader has left"));
  }

  started(status: number, headers: ResponseHeaders): void {
    this.#status = status;
    this.#headers = headers;
    if (status < 300) this.#accepted();
    else this.#beginWhole(false);
  }

  received(chunk: Buffer): boolean {
    if (this.#ended) return true;
    try {
      this.#read(chunk);
    } catch (thrown) {
      // Parts that came before the failure are still delivered.
      this.#end({ thrown });
      throw thrown;
    }
    this.#buffered += chunk.length;
    this.#deliver();
    return this.#ended || this.#waiting !== null || this.#whole !== null || this.#buffered < MAX_BUFFERED_BYTES;
  }

  completed(): void {
    if (this.#ended) return;
    try {
      this.#complete();
      this.#end(null);
    } catch (thrown) {
      this.#end({ thrown });
    }
  }

  failed(thrown: unknown): void {
    this.#end({ thrown });
  }

  #read(piece: Buffer): void {
    let chunk = piece;
    if (this.#events === null && this.#whole === null) {
      chunk = withoutLead(piece);
      if (chunk.length === 0) return;
      // Only a JSON object or an HTML page is something other than events, whatever the Content-Type says.
      if (chunk[0] === BRACE || chunk[0] === LESS_THAN) this.#beginWhole(chunk[0] === BRACE);
      else this.#events = new EventReader((data) => this.#parts.event(data));
    }
    if (this.#events !== null) {
      this.#events.push(chunk);
      if (this.#parts.complete) this.#end(null);
      return;
    }
    const whole = this.#whole!;
    whole.push(chunk);
    if (!this.#mayBeAnswer && whole.length > MAX_ERROR_CHARACTERS) throw this.#refusal(whole.end());
  }

  #beginWhole(mayBeAnswer: boolean): void {
    this.#whole = new Whole();
    this.#mayBeAnswer = mayBeAnswer;
  }

  #complete(): void {
    if (this.#whole === null) {
      const rest = this.#events?.end() ?? null;
      if (rest !== null) this.#lastEvent(rest);
    } else this.#readWhole(this.#whole.end());
    if (!this.#parts.complete) this.#parts.finish();
  }

  /** Reads a last event without its empty line. A truncated one is skipped: `finish` throws if the answer is not complete. */
  #lastEvent(data: string): void {
    try {
      if (data !== "[DONE]") JSON.parse(data);
    } catch {
      return;
    }
    this.#parts.event(data);
  }

  #readWhole(text: string): void {
    if (!this.#mayBeAnswer) throw this.#refusal(text);
    const completion = parseEvent(text);
    if (!Array.isArray(completion.choices) && !completion.error) throw this.#refusal(text);
    this.#parts.chunk(completion);
  }

  #refusal(body: string): Error {
    const { url } = this.#form;
    return refusedCall({
      url,
      status: this.#status,
      headers: this.#headers,
      body: body.slice(0, MAX_ERROR_CHARACTERS),
    });
  }

  #take(): PartBatch {
    const parts = this.#parts.take();
    this.#buffered = 0;
    // `resume` may receive data before it returns, which must be counted from zero.
    this.#call?.resume();
    return parts;
  }

  #end(failure: { thrown: unknown } | null): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#failure = failure;
    if (failure === null) this.#accepted();
    else this.#refused(failure.thrown);
    this.#deliver();
  }

  /** Resolves the pending `next`, if there is one. */
  #deliver(): void {
    const waiting = this.#waiting;
    if (waiting === null || (this.#parts.length === 0 && !this.#ended)) return;
    this.#waiting = null;
    if (this.#parts.length > 0) waiting.resolve(this.#take());
    else if (this.#failure !== null) waiting.reject(this.#failure.thrown);
    else waiting.resolve(null);
  }
}

const LESS_THAN = 60;
const BRACE = 123;
/** White space, and the bytes of a byte order mark. */
const LEAD: ReadonlySet<number> = new Set([9, 10, 13, 32, 0xef, 0xbb, 0xbf]);

/** The chunk from the first byte on that tells what kind of answer it is. */
function withoutLead(chunk: Buffer): Buffer {
  let index = 0;
  while (index < chunk.length && LEAD.has(chunk[index]!)) index++;
  return index === 0 ? chunk : chunk.subarray(index);
}
