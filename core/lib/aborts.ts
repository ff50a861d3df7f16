/**
 * Work that can be aborted, such as a request whose client leaves. Creating an AbortSignal and listening to it is a large part of the cost
 * of a model call, and the signal outlives the call in V8's heap, so code on the hot path uses these listeners and needs no signal.
 */

export interface AbortListener {
  aborted(reason: unknown): void;
}

export interface Aborts {
  /** The listener is called once; immediately if the work has been aborted already. */
  add(listener: AbortListener): void;
  remove(listener: AbortListener): void;
}

/** Can be aborted, and creates a signal only when one is requested. */
export class AbortSource implements Aborts {
  #listeners: AbortListener[] = NONE;
  #controller: AbortController | null = null;
  #aborted: { readonly reason: unknown } | null = null;

  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#aborted !== null) this.#controller.abort(this.#aborted.reason);
    }
    return this.#controller.signal;
  }

  /** Why it was aborted; undefined while it is not. */
  get reason(): unknown {
    return this.#aborted?.reason;
  }

  /** Whether a signal has been created. */
  get hasSignal(): boolean {
    return this.#controller !== null;
  }

  abort(reason: unknown): void {
    if (this.#aborted !== null) return;
    this.#aborted = { reason };
    const listeners = this.#listeners;
    this.#listeners = NONE;
    for (const listener of listeners) listener.aborted(reason);
    this.#controller?.abort(reason);
  }

  add(listener: AbortListener): void {
    if (this.#aborted !== null) listener.aborted(this.#aborted.reason);
    else if (this.#listeners.length === 0) this.#listeners = [listener];
    else this.#listeners.push(listener);
  }

  remove(listener: AbortListener): void {
    if (this.#listeners.at(-1) === listener) this.#listeners.pop();
    else this.#listeners = this.#listeners.filter((other) => other !== listener);
  }
}

/** Shared by all sources without listeners; never changed. */
const NONE: AbortListener[] = [];

/** Adapts a signal, for one listener. */
class SignalAborts implements Aborts {
  readonly #signal: AbortSignal;
  #listener: AbortListener | null = null;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  add(listener: AbortListener): void {
    if (this.#signal.aborted) {
      listener.aborted(this.#signal.reason);
      return;
    }
    this.#listener = listener;
    this.#signal.addEventListener("abort", this, { once: true });
  }

  remove(): void {
    this.#listener = null;
    this.#signal.removeEventListener("abort", this);
  }

  handleEvent(): void {
    this.#listener?.aborted(this.#signal.reason);
  }
}

export const abortsOf = (signal: AbortSignal | undefined): Aborts | undefined => signal && new SignalAborts(signal);
