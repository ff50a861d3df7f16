/**
 * Replies that wait for a slow reader, over uWebSockets.js. The addon closes a response whose reader accepts nothing for ten seconds, and
 * has no setting for that time. Pausing and resuming a response restarts the addon's timeout, so this is done regularly while a reply
 * is in progress, and the limit of the manifest decides here which readers are disconnected.
 */
import type { ListenOptions } from "../http/exchange.ts";
import { Deferred } from "../lib/abortable.ts";
import type { NativeResponse } from "./uws-native.ts";

/** How often the addon's timeout is restarted. The addon counts in steps of four seconds, so its ten seconds may be eight. */
const TIMEOUT_RESTART_SECONDS = 3;

type FlowLimits = Pick<ListenOptions, "stall" | "refused">;

/** The replies in progress of one listener, and their common clock. */
export class UwsFlows {
  readonly #limits: FlowLimits;
  readonly #open = new Set<UwsFlow>();
  readonly #timer: NodeJS.Timeout;
  /** Seconds since the start of the listener. */
  now = 0;

  constructor(limits: FlowLimits) {
    this.#limits = limits;
    this.#timer = setInterval(() => this.#tick(), 1000);
    this.#timer.unref();
  }

  add(flow: UwsFlow): void {
    this.#open.add(flow);
  }

  remove(flow: UwsFlow): void {
    this.#open.delete(flow);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** Called for a reader that has accepted nothing for too long. */
  onStalled(): void {
    this.#limits.refused?.("server.limits.stall");
  }

  #tick(): void {
    this.now++;
    const stall = Math.max(1, Math.ceil(this.#limits.stall / 1000));
    for (const flow of this.#open) flow.tick(this.now, stall);
  }
}

/** One reply in progress. Create it while the response is corked or in its route callback. */
export abstract class UwsFlow {
  /** Whether data waits, for the reader or for another cork: then the addon is given no more until `push` is called. */
  protected blocked = false;
  /** Whether it is the cork that takes no more, and not the reader. */
  protected corkIsFull = false;
  protected readonly response: NativeResponse;
  readonly #flows: UwsFlows;
  readonly #began: number;
  /** When the reader last accepted data, on the clock of the listener. */
  #lastProgress = 0;
  #watches = false;

  constructor(flows: UwsFlows, response: NativeResponse) {
    this.#flows = flows;
    this.response = response;
    this.#began = flows.now;
    flows.add(this);
  }

  /** Passes waiting data to the addon, corked; true when the addon accepted all of it. May end the reply. Must not throw. */
  protected abstract push(): boolean;

  /** Passes on what waits, in as many corks as it needs. Must not be called while the addon has the response corked. */
  protected advance(): void {
    do {
      this.corkIsFull = false;
      this.response.cork(() => {
        this.blocked = !this.push();
      });
    } while (this.corkIsFull);
  }

  /** Must be called when the addon reports that the reader is behind. */
  protected block(): void {
    this.#watch();
    this.blocked = true;
    this.#lastProgress = this.#flows.now;
  }

  /** Must be called when the reply has ended or the peer has left: the response must not be used any more. */
  stop(): void {
    this.corkIsFull = false;
    this.#flows.remove(this);
  }

  tick(now: number, stall: number): void {
    if (this.blocked && !this.corkIsFull && now - this.#lastProgress > stall) {
      this.#flows.onStalled();
      this.response.close();
      return;
    }
    // The addon does not report what it could not send at the end of a cork, so its timeout may run for any reply.
    if (now === this.#began || (now - this.#began) % TIMEOUT_RESTART_SECONDS !== 0) return;
    this.#watch();
    this.response.pause();
    this.response.resume();
  }

  #watch(): void {
    if (this.#watches) return;
    this.#watches = true;
    // With this listener the addon sends its own backlog only with the next write; even an empty cork triggers that.
    this.response.onWritable(() => {
      this.#lastProgress = this.#flows.now;
      this.advance();
      return true;
    });
  }
}

/** The size of the addon's cork buffer, less the headers that the addon adds and what ends a stream. */
export const CORK_BYTES = 16 * 1024 - 256;
/** What the addon writes before a chunk, at most. */
const CHUNK_HEAD_BYTES = 12;

type Chunk = string | Uint8Array;

/**
 * The chunks of a streamed reply over a native response, including those that wait.
 *
 * When data does not fit into the cork buffer, the addon sends that buffer first, and if the socket takes less than all of it, the binary
 * for Node 20 loses the data (mended in uWebSockets by 6b7f354, April 2026). So a cork is given what fits. It lasts for as long as the
 * callback of the addon and what that leaves to microtasks, in which a cork of our own is none: only the next turn of the event loop has
 * a new one for certain.
 */
export class UwsStream extends UwsFlow {
  /** What was not passed to the addon yet, in pieces that fit into a cork. */
  #waiting: Uint8Array[] = [];
  /** Bytes of the chunk that the addon accepted but could not send completely. */
  #held = 0;
  /** Bytes that the cork still takes. */
  #room = CORK_BYTES;
  #ending: (() => void) | null = null;
  #drain: Deferred | null = null;

  /** Bytes that wait. */
  get behind(): number {
    return this.#waiting.reduce((bytes, piece) => bytes + piece.length, this.#held);
  }

  /** Sends status and headers. The response must be corked. */
  open(head: string): void {
    this.response.writeStatus(head);
    this.#room -= head.length;
  }

  /** The response must be corked. False when the chunk has to wait; it is accepted all the same. */
  write(chunk: Chunk): boolean {
    if (!this.blocked) {
      const size = chunkBytes(chunk);
      if (this.#takes(size)) return this.#pass(chunk, size);
      this.blocked = true;
      setImmediate(() => {
        if (this.corkIsFull) this.advance();
      });
    }
    const bytes = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
    for (let at = 0; at < bytes.length; at += CORK_BYTES) this.#waiting.push(bytes.subarray(at, at + CORK_BYTES));
    return false;
  }

  drained(): Promise<void> {
    if (!this.blocked) return Promise.resolve();
    this.#drain ??= new Deferred();
    return this.#drain.promise;
  }

  /** False when chunks wait: then `finish` is called, corked, when all of them were passed to the addon. */
  end(finish: () => void): boolean {
    if (!this.blocked) return true;
    this.#ending = finish;
    this.resolveDrained();
    return false;
  }

  resolveDrained(): void {
    this.#drain?.resolve();
    this.#drain = null;
  }

  protected push(): boolean {
    this.#held = 0;
    this.#room = CORK_BYTES;
    const waiting = this.#waiting;
    let at = 0;
    while (this.#held === 0 && at < waiting.length && this.#takes(waiting[at]!.length)) this.#pass(waiting[at++]!);
    this.#waiting = waiting.slice(at);
    if (this.corkIsFull || this.#held > 0) return false;
    if (this.#ending !== null) this.#ending();
    else this.resolveDrained();
    return true;
  }

  /** Whether so many bytes fit into the cork, which then has so much less room. */
  #takes(size: number): boolean {
    this.corkIsFull = size > this.#room;
    this.#room -= size + CHUNK_HEAD_BYTES;
    return !this.corkIsFull;
  }

  /** False when the addon could not send all of the chunk. */
  #pass(chunk: Chunk, size = chunk.length): boolean {
    if (this.response.write(chunk)) return true;
    this.#held = size;
    this.block();
    return false;
  }
}

export function chunkBytes(chunk: Chunk): number {
  return typeof chunk === "string" ? Buffer.byteLength(chunk) : chunk.length;
}
