/** Counts the work that uses a resource, so that the resource can be released after the last of it. */
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
    if (--this.#count === 0 && this.#waiting.length > 0) for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** @param work must not reject */
  during(work: Promise<void>): void {
    this.enter();
    void work.then(() => this.leave());
  }

  /** Resolves when no work is in progress. Work that leads to further work overlaps with it. */
  async whenOver(): Promise<void> {
    while (this.#count > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
}
