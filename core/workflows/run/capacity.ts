/** Limits how many executions run in this process at once, of all and of one user, and begins none where there is no room for it. */
import { type User, userIdOf } from "../../identity/principal.ts";
import { rateLimited, unavailable } from "../../lib/errors.ts";
import { KeyCounts } from "../../lib/key-counts.ts";
import type { CountRefusal } from "../../observability/metrics/meters.ts";

export interface CapacityLimits {
  readonly executions: number;
  /** Of one known user. Who is nobody shares the places of all. */
  readonly userExecutions?: number | undefined;
}

export class ExecutionCapacity {
  #limits: CapacityLimits;
  #running = 0;
  readonly #ofUsers = new KeyCounts();
  readonly #refused: CountRefusal | undefined;
  /** Slots reserved for executions that are about to run. */
  #reserved = 0;
  readonly #waiting: (() => void)[] = [];
  /** False: those that are kept take all the room of `memory:`, and none of them has ended. */
  hasRoom = true;
  #resolveFull: () => void = () => {};
  /** Resolves when an execution has to wait for a slot for the first time. */
  readonly full: Promise<void> = new Promise((resolve) => {
    this.#resolveFull = resolve;
  });

  /** @param refused called whenever there is no slot for a client */
  constructor(limits: CapacityLimits, refused?: CountRefusal) {
    this.#limits = limits;
    this.#refused = refused;
  }

  /** Sets the limits from now on. Running executions are not affected. */
  set limits(limits: CapacityLimits) {
    this.#limits = limits;
    this.#slotFreed();
  }

  get #free(): boolean {
    return this.#running + this.#reserved < this.#limits.executions;
  }

  /** Must be called when an execution runs from now on. */
  entered(user: User | undefined): void {
    this.#count(user, 1);
  }

  /** Must be called when an execution that had entered has ended. */
  left(user: User | undefined): void {
    this.#count(user, -1);
    this.#slotFreed();
  }

  #count(user: User | undefined, change: 1 | -1): void {
    this.#running += change;
    const id = userIdOf(user ?? null);
    if (id !== null) this.#ofUsers.add(id, change);
  }

  /**
   * Checks for a free slot for an execution that a client requests: it does not wait, and does not overtake those that do.
   *
   * @param user whose execution it is
   * @throws ServiceError `rate_limited` when this user has too many, `unavailable` when all together have
   */
  requireFree(user: User | null | undefined, { isNew = false } = {}): void {
    // One that goes on needs no more room.
    if (isNew && !this.hasRoom)
      throw unavailable("the executions in memory: take all their room, and none has ended: resume or cancel some");
    const { executions, userExecutions = executions } = this.#limits;
    const id = userIdOf(user ?? null);
    if (id !== null && this.#ofUsers.of(id) >= userExecutions) {
      this.#refused?.("server.limits.userExecutions");
      throw rateLimited(
        `${userExecutions} executions of this user are running, as many as server.limits.userExecutions allows: try again`,
      );
    }
    if (this.#free && this.#waiting.length === 0) return;
    this.#refused?.("server.limits.executions");
    throw unavailable(`${executions} executions are running, as many as server.limits.executions allows: try again`);
  }

  /** Runs `work`, which may start an execution, as soon as there is a free slot for it. */
  async whenFree<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free) this.#reserved++;
    else {
      this.#resolveFull();
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    try {
      return await work();
    } finally {
      this.#reserved--;
      this.#slotFreed();
    }
  }

  #slotFreed(): void {
    if (this.#waiting.length === 0 || !this.#free) return;
    this.#reserved++;
    this.#waiting.shift()!();
  }

  /** Lets everything that waits proceed at once, for the shutdown: it checks by itself that nothing may start any more. */
  releaseWaiting(): void {
    for (const proceed of this.#waiting.splice(0)) {
      this.#reserved++;
      proceed();
    }
  }
}
