/** Tracks whether an engine works: logs one line when it stops working and one when it works again, and makes the error for clients. */
import type { Logger } from "pino";
import { messageOf, type ServiceError, unavailable } from "../lib/errors.ts";

/** Reads may work while writes fail, on a full disk for example. */
export type Side = "read" | "write";

/** What the engine threw is no `cause`, which is logged with each request: the log has it once. */
export type Refusal = ServiceError & { readonly reason: unknown };

export interface Health {
  /** The error for a call when the engine threw `reason`. Logs it, unless it is the same problem as before. */
  failed(side: Side, reason: unknown): Refusal;
  worked(side: Side): void;
  /** Why the last call of `side` failed; null when it succeeded. */
  problem(side: Side): string | null;
}

/**
 * @param where name of the store in the log: `sqlite:data/penstock.db`
 * @param explain describes an error, also for clients: without paths and addresses
 */
export function createHealth(logger: Logger, where: string, explain: (reason: unknown) => string): Health {
  const problems: Record<Side, string | null> = { read: null, write: null };
  return {
    failed(side, reason) {
      const problem = explain(reason);
      if (problems[side] !== problem) {
        logger.error({ err: reason }, `${where} cannot ${side}: ${problem} (${messageOf(reason)})`);
      }
      problems[side] = problem;
      return Object.assign(unavailable(`storage is unavailable: ${problem}`), { reason });
    },
    worked(side) {
      if (problems[side] === null) return;
      problems[side] = null;
      logger.info(`${where} can ${side} again`);
    },
    problem: (side) => problems[side],
  };
}
