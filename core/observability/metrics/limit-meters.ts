/** Counts, for each limit of the manifest by its path, how often it has refused something, and how much of it is in use. */

/** Limits that refuse what exceeds them. `body` is a single size, or has one for each class of routes. */
const REFUSING = [
  "server.limits.body",
  "server.limits.body.default",
  "server.limits.body.generation",
  "server.limits.uploads",
  "server.limits.executions",
  "server.limits.userExecutions",
  "server.limits.execution",
  "server.limits.stored",
  "server.limits.userTasks",
  "server.limits.approvals",
  "server.limits.request",
  "server.limits.stall",
  "server.limits.connections",
  "server.limits.socketMessage",
] as const;

export type RefusingLimit = (typeof REFUSING)[number];

/** Called by the part of the service that refuses. */
export type CountRefusal = (limit: RefusingLimit) => void;

export class LimitMeters {
  readonly #refused = new Map<string, number>(REFUSING.map((limit) => [limit, 0]));
  readonly #used = new Map<string, () => number>();

  readonly count: CountRefusal = (limit) => {
    this.#refused.set(limit, this.#refused.get(limit)! + 1);
  };

  /** Sets the function that returns how much is in use, in the unit of the limit. After a reload, the new part sets it again. */
  measure(limit: string, read: () => number): void {
    this.#used.set(limit, read);
  }

  /** Undefined for a limit that refuses nothing, such as a delay, or a size to which something is cut. */
  refused(limit: string): number | undefined {
    return this.#refused.get(limit);
  }

  /** Undefined when it is unknown. */
  used(limit: string): number | undefined {
    return this.#used.get(limit)?.();
  }
}
