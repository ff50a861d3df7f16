/** Counts the work that uses a resource, so that the resource can be released after the last of it. */
export class Uses {
  #count = 0;
  /** Null while nobody waits, as always for the work of most requests. */
  #waiting: (() => void)[] | null = null;

  get count(): number {
    return this.#count;
  }

  enter(): void {
    this.#count++;
  }

  leave(): void {
    if (--this.#count > 0 || this.#waiting === null) return;
    for (const resolve of this.#waiting) resolve();
    this.#waiting = null;
  }

  /** @param work must not reject */
  during(work: Promise<void>): void {
    this.enter();
    void work.then(() => this.leave());
  }

  /** Resolves when no work is in progress. Work that leads to further work overlaps with it. */
  async whenOver(): Promise<void> {
    while (this.#count > 0)
      await new Promise<void>((resolve) => {
        this.#waiting ??= [];
        this.#waiting.push(resolve);
      });
  }
}
