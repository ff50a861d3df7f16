/**
 * What waits for a reader that is behind, over uWebSockets.js. The addon cuts whoever takes nothing for ten seconds, and has no
 * setting for that; to pause and resume a response sets its clock back. So it is wound while a reply is under way, and who is to
 * be cut is decided here, by the rule of the manifest.
 */
import type { NativeResponse } from "./uws-native.ts";

/** Seconds between two windings: the addon counts in steps of four, so that its ten may be eight. */
const CLOCK_RESET_SECONDS = 3;

/** The replies under way of one listener, and their clock. */
export class UwsFlows {
  readonly #stall: number;
  readonly #open = new Set<UwsFlow>();
  readonly #timer: NodeJS.Timeout;
  /** Seconds since some start. */
  now = 0;

  /** @param stall milliseconds that a reader may take nothing while a reply waits for it */
  constructor(stall: number) {
    this.#stall = Math.max(1, Math.ceil(stall / 1000));
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

  #tick(): void {
    this.now++;
    for (const flow of this.#open) flow.tick(this.now, this.#stall);
  }
}

/** One reply under way. Made when the response is corked or in its route callback. */
export abstract class UwsFlow {
  /** The reader is behind: the addon is given nothing more until `push` is called. */
  protected blocked = false;
  protected readonly response: NativeResponse;
  readonly #flows: UwsFlows;
  readonly #began: number;
  /** When the reader took something last. */
  #lastProgress = 0;
  #watches = false;

  constructor(flows: UwsFlows, response: NativeResponse) {
    this.#flows = flows;
    this.response = response;
    this.#began = flows.now;
    flows.add(this);
  }

  /** Gives the addon what waits, corked; true when it has taken all of it. It may end the reply. Must not throw. */
  protected abstract push(): boolean;

  /** The addon has said that the reader is behind. */
  protected block(): void {
    this.#watch();
    this.blocked = true;
    this.#lastProgress = this.#flows.now;
  }

  /** The reply is over, or its peer is gone: the response must not be touched any more. */
  stop(): void {
    this.#flows.remove(this);
  }

  tick(now: number, stall: number): void {
    if (this.blocked && now - this.#lastProgress > stall) {
      this.response.close();
      return;
    }
    // The addon does not tell what it could not send at the end of a cork: the clock may run for any reply.
    if (now === this.#began || (now - this.#began) % CLOCK_RESET_SECONDS !== 0) return;
    this.#watch();
    this.response.pause();
    this.response.resume();
  }

  #watch(): void {
    if (this.#watches) return;
    this.#watches = true;
    this.response.onWritable(() => this.#writable());
  }

  /** With a listener the addon does not send what waits, but at the next write: even an empty cork makes it. */
  #writable(): boolean {
    this.#lastProgress = this.#flows.now;
    this.response.cork(() => {
      this.blocked = !this.push();
    });
    return true;
  }
}
