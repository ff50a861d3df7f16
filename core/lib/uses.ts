/** Counts the work that needs something, so that this can be ended after the last of it. */
export class Uses {
  #count = 0;
  readonly #waiting: (() => void)[] = [];

  get count(): number {
    return this.#count;
  }

  enter(): void {
    this.#count++;
  }

  leave(): void {
    if (--this.#count === 0) for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** @param work must not reject */
  during(work: Promise<void>): void {
    this.enter();
    void work.then(() => this.leave());
  }

  /** Resolves when nothing is at work. Work that leads to more work overlaps with it. */
  async whenOver(): Promise<void> {
    while (this.#count > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
}
