/** How often each limit of the manifest has refused something, and how much of it is in use. By the path of the limit. */

/** Limits that refuse what would be beyond them. Of `body` there is one size, or one for each class of routes. */
const REFUSING = [
  "server.limits.body",
  "server.limits.body.default",
  "server.limits.body.generation",
  "server.limits.uploads",
  "server.limits.executions",
  "server.limits.execution",
  "server.limits.userTasks",
  "server.limits.request",
  "server.limits.stall",
  "server.limits.connections",
  "server.limits.socketMessage",
] as const;

export type RefusingLimit = (typeof REFUSING)[number];

/** Told by the part of the service that refuses. */
export type CountRefusal = (limit: RefusingLimit) => void;

export class LimitMeters {
  readonly #refused = new Map<string, number>(REFUSING.map((limit) => [limit, 0]));
  readonly #used = new Map<string, () => number>();

  readonly count: CountRefusal = (limit) => {
    this.#refused.set(limit, this.#refused.get(limit)! + 1);
  };

  /** Tells how to find out what is in use, in the unit of the limit. After a reload the part that serves then tells it. */
  measure(limit: string, read: () => number): void {
    this.#used.set(limit, read);
  }

  /** Undefined for a limit that refuses nothing: a time that is waited, a size that something is cut to. */
  refused(limit: string): number | undefined {
    return this.#refused.get(limit);
  }

  /** Undefined where it is not known. */
  used(limit: string): number | undefined {
    return this.#used.get(limit)?.();
  }
}
