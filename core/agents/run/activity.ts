/** Counts the runs of an agent, for its status and for a shutdown that waits for them. */
import { within } from "../../lib/abortable.ts";
import type { Uses } from "../../lib/uses.ts";

export class Activity {
  readonly #uses: Uses | undefined;
  #running = 0;
  readonly #listeners: (() => void)[] = [];

  /** @param uses counts the runs of several agents together */
  constructor(uses?: Uses) {
    this.#uses = uses;
  }

  get status(): "idle" | "working" {
    return this.#running > 0 ? "working" : "idle";
  }

  /** `listener` is called whenever the status has changed. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Resolves when no run is left, at the latest after `timeout` milliseconds. */
  async whenIdle(timeout: number): Promise<void> {
    if (this.#running === 0) return;
    const idle = new Promise<void>((resolve) => {
      this.#listeners.push(() => {
        if (this.#running === 0) resolve();
      });
    });
    await within(timeout, idle);
  }

  enter(): void {
    this.#uses?.enter();
    if (this.#running++ === 0) this.#notify();
  }

  leave(): void {
    if (--this.#running === 0) this.#notify();
    this.#uses?.leave();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }
}
