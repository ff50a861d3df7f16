/** Whether an agent is at work. */
export class Activity {
  #running = 0;
  readonly #listeners: (() => void)[] = [];

  get status(): "idle" | "working" {
    return this.#running > 0 ? "working" : "idle";
  }

  /** `listener` is called whenever the status has changed, so that what was built from it can be built anew. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Resolves when nothing runs, at the latest after `patience` milliseconds. */
  async idle(patience: number): Promise<void> {
    if (this.#running === 0) return;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      timer = setTimeout(resolve, patience);
      this.#listeners.push(() => {
        if (this.#running === 0) resolve();
      });
    });
    clearTimeout(timer);
  }

  enter(): void {
    if (this.#running++ === 0) this.#tell();
  }

  leave(): void {
    if (--this.#running === 0) this.#tell();
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }
}
