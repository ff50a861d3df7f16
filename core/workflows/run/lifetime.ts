/**
 * How long something may run. Lifetimes form a tree: execution, branch, try. To stop one stops all below it. Signals, timers and
 * listeners are made when somebody asks for them, and end with the lifetime.
 */
import { setMaxListeners } from "node:events";

/** Why something is stopped, later ones over earlier ones. */
type StopKind = "suspend" | "cancel" | "timeout" | "branch" | "closing" | "lost";

const RANK: Readonly<Record<StopKind, number>> = { suspend: 0, cancel: 1, timeout: 2, branch: 2, closing: 3, lost: 4 };

export interface Stop {
  readonly kind: StopKind;
  /** For people. */
  readonly reason: string;
  /** Milliseconds that work may still take to heed its signal, before it is given up and its result discarded. */
  readonly gracePeriod: number;
}

/** Work that was given up. */
export class GivenUp extends Error {
  override readonly name = "GivenUp";
}

/** The longest delay that a timer takes; a longer one would fire at once. */
const LONGEST = 2 ** 31 - 1;

export class Lifetime {
  /** Why it is to stop, or null while it may go on. */
  stopped: Stop | null = null;
  /** Whether it was stopped itself, and not something above it. */
  stoppedItself = false;
  readonly #parent: Lifetime | null;
  #children: Set<Lifetime> | null = null;
  #controller: AbortController | null = null;
  #limit: NodeJS.Timeout | null = null;
  #patience: NodeJS.Timeout | null = null;
  #giveUp: ((error: GivenUp) => void) | null = null;

  /** @param limit milliseconds after which it stops by itself; null: none */
  constructor(parent: Lifetime | null, limit: number | null = null) {
    this.#parent = parent;
    if (parent !== null) {
      this.stopped = parent.stopped;
      parent.#children ??= new Set();
      parent.#children.add(this);
    }
    if (limit !== null) this.setTimeLimit(limit);
  }

  /** Stops it by itself after some milliseconds. */
  setTimeLimit(milliseconds: number): void {
    const stop: Stop = { kind: "timeout", reason: "timed out", gracePeriod: 0 };
    const left = milliseconds - LONGEST;
    this.#limit = setTimeout(
      () => (left > 0 ? this.setTimeLimit(left) : this.stop(stop)),
      Math.min(milliseconds, LONGEST),
    );
  }

  /** Whether work is to be given up at once, so that nothing of it may be recorded any more. */
  get isAbandoned(): boolean {
    return this.stopped !== null && this.stopped.gracePeriod === 0;
  }

  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      // Branches that run side by side listen each: that is no leak, and Node would warn of one.
      setMaxListeners(0, this.#controller.signal);
      if (this.stopped !== null) this.#controller.abort(new GivenUp(this.stopped.reason));
    }
    return this.#controller.signal;
  }

  stop(stop: Stop): void {
    if (this.stopped !== null && RANK[stop.kind] <= RANK[this.stopped.kind]) return;
    this.stoppedItself = true;
    this.#stop(stop);
  }

  #stop(stop: Stop): void {
    this.stopped = stop;
    // Before the work hears of it, so that its own complaint about the abort is not taken for the outcome.
    if (this.#giveUp !== null) this.#run(stop);
    this.#controller?.abort(new GivenUp(stop.reason));
    if (this.#children === null) return;
    for (const child of this.#children) {
      if (child.stopped === null || RANK[stop.kind] > RANK[child.stopped.kind]) {
        child.stoppedItself = false;
        child.#stop(stop);
      }
    }
  }

  /** Waits for work, as long as it is not given up. */
  wait(work: PromiseLike<unknown>): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#giveUp = reject;
      if (this.stopped !== null) this.#run(this.stopped);
      // A thenable may do anything, and more than once.
      Promise.resolve(work).then(resolve, reject);
    });
  }

  #run({ gracePeriod, reason }: Stop): void {
    const giveUp = this.#giveUp as (error: GivenUp) => void;
    if (this.#patience !== null) clearTimeout(this.#patience);
    if (gracePeriod === 0) giveUp(new GivenUp(reason));
    else if (gracePeriod < LONGEST) this.#patience = setTimeout(() => giveUp(new GivenUp(reason)), gracePeriod);
  }

  /** Whether the time passed; false when it is to stop. */
  async sleep(milliseconds: number): Promise<boolean> {
    const { signal } = this;
    for (let left = milliseconds; this.stopped === null; left -= LONGEST) {
      await new Promise<void>((resolve) => {
        const woken = () => {
          clearTimeout(timer);
          signal.removeEventListener("abort", woken);
          resolve();
        };
        const timer = setTimeout(woken, Math.min(left, LONGEST));
        signal.addEventListener("abort", woken);
      });
      if (left <= LONGEST) break;
    }
    return this.stopped === null;
  }

  /** Over: nothing stays behind. */
  end(): void {
    const siblings = this.#parent === null ? null : this.#parent.#children;
    siblings?.delete(this);
    if (this.#limit !== null) clearTimeout(this.#limit);
    if (this.#patience !== null) clearTimeout(this.#patience);
    this.#giveUp = null;
  }
}
