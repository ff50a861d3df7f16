/** Time, chance and order of a simulation: whatever waits is in one queue, and everything that happens is a line of the trace. */
import { createHash } from "node:crypto";
import { type Random, randomOf } from "../fuzz/random.ts";

/** What happens at a time. */
interface Event {
  readonly at: number;
  readonly number: number;
  /** Null once it is taken back. */
  run: (() => void) | null;
}

/** When a simulation begins that begins with no rows. */
const BEGINNING = Date.UTC(2026, 0, 1);

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

export class World {
  readonly seed: number;
  readonly #beginning: number;
  /** True time, in milliseconds since the beginning. */
  now = 0;
  /** Called with each line of the trace. */
  onLine: ((line: string) => void) | undefined;
  /** What was wrong. The first ends the simulation. */
  readonly complaints: string[] = [];
  steps = 0;
  /** What something real is at work on: a database that is not simulated. */
  readonly #held = new Set<Promise<unknown>>();
  readonly #hash = createHash("sha256");
  readonly #queue: Event[] = [];
  #number = 0;

  /** @param beginning in milliseconds since 1970 */
  constructor(seed: number, beginning: number = BEGINNING) {
    this.seed = seed;
    this.#beginning = beginning;
  }

  /** Choices of its own for each name, so that what one part does moves none of the others. */
  random(name: string): Random {
    return randomOf(createHash("sha256").update(`${this.seed} ${name}`).digest().readUInt32LE());
  }

  systemTime(): number {
    return this.#beginning + this.now;
  }

  trace(line: string): void {
    const whole = `${(this.now / 1_000).toFixed(3).padStart(9)} ${line}`;
    this.#hash.update(`${whole}\n`);
    this.onLine?.(whole);
  }

  /** The trace so far, in 16 characters. */
  digest(): string {
    return this.#hash.copy().digest("hex").slice(0, 16);
  }

  complain(complaint: string): void {
    this.complaints.push(complaint);
    this.trace(`WRONG ${complaint}`);
  }

  require(condition: boolean, complaint: () => string): void {
    if (!condition) this.complain(complaint());
  }

  /** @returns what takes it back */
  after(delay: number, run: () => void): () => void {
    const event: Event = { at: this.now + Math.max(delay, 0), number: this.#number++, run };
    push(this.#queue, event);
    return () => {
      event.run = null;
    };
  }

  sleep(delay: number): Promise<void> {
    return new Promise((resolve) => void this.after(delay, resolve));
  }

  /** Lets nothing else happen until that has settled. */
  hold<T>(work: Promise<T>): Promise<T> {
    const held: Promise<unknown> = work.then(
      () => this.#held.delete(held),
      () => this.#held.delete(held),
    );
    this.#held.add(held);
    return work;
  }

  /** All that follows without waiting, for nothing of it waits for anything real but for what is held. */
  async #settle(): Promise<void> {
    await nextTurn();
    while (this.#held.size > 0) {
      await Promise.all(this.#held);
      await nextTurn();
    }
  }

  /** Lets things happen until `done`, something is wrong, or so much time has passed. @returns whether it is done */
  async run(done: () => boolean, most: number): Promise<boolean> {
    const end = this.now + most;
    await this.#settle();
    while (!done()) {
      const event = this.#queue[0];
      if (event === undefined || event.at > end || this.complaints.length > 0) return false;
      pop(this.#queue);
      if (event.run === null) continue;
      this.now = Math.max(event.at, this.now);
      this.steps++;
      event.run();
      await this.#settle();
    }
    return true;
  }
}

const isBefore = (a: Event, b: Event): boolean => a.at < b.at || (a.at === b.at && a.number < b.number);

function push(heap: Event[], event: Event): void {
  let at = heap.push(event) - 1;
  while (at > 0) {
    const above = (at - 1) >> 1;
    if (!isBefore(event, heap[above]!)) break;
    heap[at] = heap[above]!;
    at = above;
  }
  heap[at] = event;
}

function pop(heap: Event[]): void {
  const last = heap.pop()!;
  if (heap.length === 0) return;
  let at = 0;
  for (;;) {
    let below = 2 * at + 1;
    if (below >= heap.length) break;
    if (below + 1 < heap.length && isBefore(heap[below + 1]!, heap[below]!)) below++;
    if (!isBefore(heap[below]!, last)) break;
    heap[at] = heap[below]!;
    at = below;
  }
  heap[at] = last;
}
