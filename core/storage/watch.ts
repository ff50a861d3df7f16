/** Waits between two looks at something that other processes change. */
import type { Store } from "./store.ts";

export class Watch {
  /** Whether it was woken since the last wait: then the next one is none. */
  #woken = false;
  #wake: (() => void) | null = null;
  readonly #end: (() => void) | undefined;

  /** To be made before the first look, so that nothing is missed between the two. */
  constructor(store: Pick<Store, "watch">, topic: string) {
    this.#end = store.watch?.(topic, () => {
      if (this.#wake === null) this.#woken = true;
      else this.#wake();
    });
  }

  /** Resolves when the topic is woken, when the time is over or when `signal` aborts. */
  wait(milliseconds: number, signal?: AbortSignal): Promise<void> {
    if (this.#woken || signal?.aborted) {
      this.#woken = false;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", done);
        this.#wake = null;
        resolve();
      };
      const timer = setTimeout(done, milliseconds).unref();
      signal?.addEventListener("abort", done);
      this.#wake = done;
    });
  }

  end(): void {
    this.#end?.();
  }
}
