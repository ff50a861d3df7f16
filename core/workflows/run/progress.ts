/** Notifies waiting readers of progress. */
export class ProgressSignal {
  #next: { readonly promise: Promise<void>; readonly resolve: () => void } | null = null;

  /** Resolves with the next `notify`. */
  wait(): Promise<void> {
    if (this.#next === null) {
      let resolve = () => {};
      const promise = new Promise<void>((done) => {
        resolve = done;
      });
      this.#next = { promise, resolve };
    }
    return this.#next.promise;
  }

  notify(): void {
    this.#next?.resolve();
    this.#next = null;
  }
}
