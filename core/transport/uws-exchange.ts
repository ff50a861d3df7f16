/** One request and its reply over uWebSockets.js. The lifetimes of native objects are listed in uws-native.ts. */
import type { BodyProblem, Exchange, HeaderList, OnBody, OnBodyFailed, Uploads } from "../http/exchange.ts";
import { BodyBuffer, MAX_DISCARDED_BODY_BYTES } from "./body.ts";
import type { Heads } from "./heads.ts";
import { normalizeAddress } from "./target.ts";
import { CORK_BYTES, chunkBytes, UwsFlow, type UwsFlows, UwsStream } from "./uws-flow.ts";
import type { UwsHead } from "./uws-head.ts";
import type { NativeResponse, Unanswered } from "./uws-native.ts";

export interface UwsListener {
  /** The head of the request being dispatched. */
  readonly head: UwsHead;
  readonly heads: Heads;
  readonly flows: UwsFlows;
  /** The exchange whose head may be read now. */
  reading: UwsExchange | null;
  /** The exchange whose socket is corked now: it writes without a cork of its own. */
  corked: UwsExchange | null;
  /** Null when there are no sockets. */
  readonly unanswered: Unanswered | null;
  /** Bytes of the whole replies that were corked by the addon in this turn of the event loop, or in some turns before it too. */
  corkedBytes: number;
  /** True once the listener is stopping: every reply then closes its connection. */
  stopping: boolean;
  /** Reports an error of a callback: errors must not be thrown into native code. */
  report(error: unknown): void;
}

/** Sends status, headers and body in two native calls. The addon adds content-length and date. The response must be corked. */
function sendWhole(response: NativeResponse, head: string, body: string | Uint8Array, close: boolean): void {
  response.writeStatus(head);
  if (close) response.end(body, true);
  else response.end(body);
}

/** Sends status and headers only: for HEAD, 204 and 304. */
function sendHead(
  response: NativeResponse,
  status: number,
  head: string,
  body: string | Uint8Array | null,
  close: boolean,
): void {
  let lines = head;
  if (status !== 204) lines += `\r\ncontent-length: ${body === null ? 0 : Buffer.byteLength(body)}`;
  // The client must close the connection: endWithoutBody can only do so together with a length.
  if (close) lines += "\r\nconnection: close";
  response.writeStatus(lines);
  response.endWithoutBody();
}

/** A large body, passed to the addon as fast as the reader accepts it: the native response lives until `done` is called. */
class LargeReply extends UwsFlow {
  readonly #body: Uint8Array;
  readonly #done: () => void;

  constructor(flows: UwsFlows, response: NativeResponse, body: string | Uint8Array, done: () => void) {
    super(flows, response);
    this.#body = typeof body === "string" ? Buffer.from(body) : body;
    this.#done = done;
  }

  /** The response must be corked. */
  send(head: string): void {
    this.response.writeStatus(head);
    if (!this.push()) this.block();
  }

  protected push(): boolean {
    const { response } = this;
    const [, done] = response.tryEnd(this.#body.subarray(response.getWriteOffset()), this.#body.length);
    if (done) this.#done();
    return done;
  }
}

/** What the addon adds to the head of a reply, about. */
const ADDED_HEAD_BYTES = 128;
const EMPTY = new Uint8Array(0);
/** An empty comment that is sent with the head of an event stream: the addon sends no head without a chunk. */
const FILLER = ":\n\n";

export class UwsExchange implements Exchange {
  readonly method: string;
  path: string;
  readonly query: string;
  closed = false;
  requestId = "";
  protected readonly listener: UwsListener;
  /** Null as soon as the native object must not be used any more. */
  private response: NativeResponse | null;
  /** The head of a stream that has started, until it is sent. */
  private pendingHead: string | null = null;
  private begun = false;
  private mustClose: boolean;
  /** The streamed reply in progress, which may have to wait for a slow reader. */
  private stream: UwsStream | null = null;
  private large: LargeReply | null = null;
  /** True inside `cork`, which sends a pending head at its end. */
  private corking = false;
  private aborted: (() => void) | null = null;
  private receiving: { buffer: BodyBuffer; failed: OnBodyFailed } | null = null;

  constructor(listener: UwsListener, response: NativeResponse, method: string, path: string, query: string) {
    this.listener = listener;
    this.response = response;
    this.method = method;
    this.path = path;
    this.query = query;
    // As if the body were not read; readBody corrects this.
    this.mustClose = listener.head.chunked || listener.head.contentLength > MAX_DISCARDED_BODY_BYTES;
  }

  header(name: string): string {
    this.assertReading();
    return this.listener.head.get(name);
  }

  headers(): Record<string, string> {
    this.assertReading();
    return this.listener.head.all();
  }

  private assertReading(): void {
    if (this.listener.reading !== this) throw new Error("the head of a request can be read during dispatch only");
  }

  remoteAddress(): string {
    if (this.response === null) return "";
    return normalizeAddress(Buffer.from(this.response.getRemoteAddressAsText()).toString("latin1"));
  }

  readBody(limit: number, done: OnBody, failed: OnBodyFailed, uploads?: Uploads): void {
    this.assertReading();
    const { head } = this.listener;
    if (head.contentLength === 0 && !head.chunked) {
      done(EMPTY);
      return;
    }
    if (this.response === null) return;
    // A chunked body may never end, and where it ends the addon may read what is behind it otherwise than a proxy: a trailer is a request
    // to it, and a chunk needs no line end. So nothing is read on a connection behind one.
    const { chunked } = head;
    const buffer = new BodyBuffer(limit, uploads);
    const refused = buffer.refusalFor(head.contentLength);
    this.mustClose = chunked || refused !== null;
    if (refused !== null) {
      failed(refused);
      return;
    }
    this.receiving = { buffer, failed };
    collectBody(this.response, buffer, (body) => {
      this.receiving = null;
      this.mustClose = chunked || typeof body === "string";
      this.enter(() => (typeof body === "string" ? failed(body) : done(body)));
    });
  }

  /** Runs `work` with the exchange corked. Errors must not reach the native caller. */
  private enter(work: () => void): void {
    const { listener } = this;
    const before = listener.corked;
    listener.corked = this;
    this.guard(work);
    listener.corked = before;
  }

  private guard(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.listener.report(error);
    }
  }

  onAbort(listener: () => void): void {
    this.aborted = listener;
  }

  /** Called before the route callback returns if the reply has not ended: the addon then requires an abort callback. */
  watch(): void {
    this.response?.onAborted(() => {
      this.leave();
      if (this.closed) return; // only a delayed reply is lost
      const { receiving, aborted } = this;
      this.close();
      if (receiving !== null) this.guard(() => receiving.failed("aborted"));
      if (aborted !== null) this.guard(aborted);
    });
  }

  get over(): boolean {
    return this.response === null;
  }

  reply(status: number, headers: HeaderList, body: string | Uint8Array | null, close = false): void {
    if (this.closed || this.begun) return;
    const { listener } = this;
    const head = this.joinHead(status, headers);
    this.close();
    if (close || this.mustClose || listener.stopping) this.replyAndClose(status, head, body);
    else if (listener.corked === this) this.send(status, head, body, false);
    else this.response!.cork(() => this.send(status, head, body, false));
  }

  /** Delayed until no native callback is on the stack: pipelined requests would otherwise still be dispatched. */
  private replyAndClose(status: number, head: string, body: string | Uint8Array | null): void {
    setImmediate(() => this.response?.cork(() => this.send(status, head, body, true)));
  }

  private send(status: number, head: string, body: string | Uint8Array | null, close: boolean): void {
    const response = this.response!;
    const { listener } = this;
    // A character is three bytes at most.
    let size = head.length + (body === null ? 0 : body.length * 3);
    if (size > CORK_BYTES) size = head.length + chunkBytes(body!);
    if (size > CORK_BYTES && !close && this.method !== "HEAD") {
      this.large = new LargeReply(listener.flows, response, body!, () => this.leave());
      this.large.send(head);
      return;
    }
    this.response = null;
    if (this.method === "HEAD" || status === 204 || status === 304) {
      sendHead(response, status, head, body, close);
      return;
    }
    // A body that the addon loses has not ended the reply, and a reply without a listener ends the process.
    if (listener.corked === this) {
      const before = listener.corkedBytes;
      listener.corkedBytes = before + size + ADDED_HEAD_BYTES;
      if (listener.corkedBytes > CORK_BYTES) {
        response.onAborted(() => {});
        // The count begins anew only here: an immediate in each turn would be felt by each request.
        if (before <= CORK_BYTES)
          setImmediate(() => {
            listener.corkedBytes = 0;
          });
      }
    }
    sendWhole(response, head, body ?? "", close);
  }

  private joinHead(status: number, headers: HeaderList): string {
    const head = this.listener.heads.get(status, headers);
    return this.requestId === "" ? head : `${head}\r\nx-request-id: ${this.requestId}`;
  }

  begin(status: number, headers: HeaderList): void {
    if (this.closed || this.begun) return;
    const head = this.joinHead(status, headers);
    if (this.method === "HEAD") {
      this.pendingHead = head;
      this.end();
      return;
    }
    this.begun = true;
    this.stream = new UwsStream(this.listener.flows, this.response!);
    this.pendingHead = this.mustClose || this.listener.stopping ? `${head}\r\nconnection: close` : head;
    if (!this.corking) setImmediate(flushHead, this);
  }

  /** Sends the head of an event stream that has no events yet. The heads of other streams wait for the first chunk. */
  flushHead(): void {
    if (this.pendingHead?.includes("content-type: text/event-stream")) this.write(FILLER);
  }

  write(chunk: string | Uint8Array): boolean {
    if (this.closed || chunk.length === 0) return true;
    if (this.listener.corked === this) return this.put(chunk);
    let taken = true;
    this.response!.cork(() => {
      taken = this.put(chunk);
    });
    return taken;
  }

  private put(chunk: string | Uint8Array): boolean {
    if (this.pendingHead !== null) {
      this.stream!.open(this.pendingHead);
      this.pendingHead = null;
    }
    return this.stream!.write(chunk);
  }

  get buffered(): number {
    return this.closed ? 0 : (this.stream?.behind ?? 0);
  }

  drained(): Promise<void> {
    return this.closed || this.stream === null ? Promise.resolve() : this.stream.drained();
  }

  end(): void {
    if (this.closed) return;
    this.close();
    const finish = () => {
      const response = this.response!;
      this.leave();
      if (this.pendingHead !== null) response.writeStatus(this.pendingHead);
      if (this.method === "HEAD") response.endWithoutBody();
      else response.end();
    };
    // Ending now would leave the rest to the addon, which waits for a slow reader ten seconds at most.
    if (this.stream?.end(finish) === false) return;
    if (this.listener.corked === this) finish();
    else this.response!.cork(finish);
  }

  cork(work: () => void): void {
    if (this.response === null || this.listener.corked === this) {
      work();
      return;
    }
    let thrown: { error: unknown } | null = null;
    const { listener } = this;
    const before = listener.corked;
    this.corking = true;
    this.response.cork(() => {
      listener.corked = this;
      try {
        work();
      } catch (error) {
        thrown = { error };
      }
      listener.corked = before;
    });
    this.corking = false;
    if (this.pendingHead !== null) this.flushHead();
    if (thrown !== null) throw (thrown as { error: unknown }).error;
  }

  private close(): void {
    this.closed = true;
    this.receiving?.buffer.drop();
    this.receiving = null;
    this.stream?.resolveDrained();
  }

  /** Releases the native object, which must not be used from now on. */
  private leave(): void {
    this.response = null;
    this.stream?.stop();
    this.large?.stop();
  }

  destroy(): void {
    this.release()?.close();
  }

  /** Ends the exchange without an answer and returns its native response; null when it has ended already. */
  protected release(): NativeResponse | null {
    if (this.closed) return null;
    this.close();
    const { response } = this;
    this.leave();
    return response;
  }
}

function flushHead(exchange: UwsExchange): void {
  exchange.flushHead();
}

/**
 * Calls `end` once: with the whole body, or with its problem as soon as that is known. Chunks that arrive later, or after the
 * buffer was dropped, are ignored.
 */
function collectBody(
  response: NativeResponse,
  buffer: BodyBuffer,
  end: (body: Uint8Array | BodyProblem) => void,
): void {
  let ended = false;
  response.onData((native, last) => {
    if (ended || buffer.dropped) return;
    const problem = buffer.add(new Uint8Array(native), last);
    if (problem === null && !last) return;
    ended = true;
    end(problem ?? buffer.takeAll());
  });
}
