/**
 * Replies that wait for a slow reader, over uWebSockets.js. The addon closes a response whose reader accepts nothing for ten seconds, and
 * has no setting for that time. Pausing and resuming a response restarts the addon's timeout, so this is done regularly while a reply
 * is in progress, and the limit of the manifest decides here which readers are disconnected.
 */
import type { ListenOptions } from "../http/exchange.ts";
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
  /** Whether the reader is behind: then the addon is given no more data until `push` is called. */
  protected blocked = false;
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

  /** Must be called when the addon reports that the reader is behind. */
  protected block(): void {
    this.#watch();
    this.blocked = true;
    this.#lastProgress = this.#flows.now;
  }

  /** Must be called when the reply has ended or the peer has left: the response must not be used any more. */
  stop(): void {
    this.#flows.remove(this);
  }

  tick(now: number, stall: number): void {
    if (this.blocked && now - this.#lastProgress > stall) {
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
    this.response.onWritable(() => this.#writable());
  }

  /** With this listener the addon sends its own backlog only with the next write; even an empty cork triggers that. */
  #writable(): boolean {
    this.#lastProgress = this.#flows.now;
    this.response.cork(() => {
      this.blocked = !this.push();
    });
    return true;
  }
}
