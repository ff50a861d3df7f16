/** Tracks whether an engine works: logs one line when it stops working and one when it works again, and makes the error for clients. */
import type { Logger } from "pino";
import { messageOf, type ServiceError, unavailable } from "../lib/errors.ts";

/** Reads may work while writes fail, on a full disk for example. */
export type Side = "read" | "write";

export interface Health {
  /** The error for a call when the engine threw `cause`. Logs it, unless it is the same problem as before. */
  failed(side: Side, cause: unknown): ServiceError;
  worked(side: Side): void;
  /** Why the last call of `side` failed; null when it succeeded. */
  problem(side: Side): string | null;
}

/**
 * @param where name of the store in the log: `sqlite:data/penstock.db`
 * @param explain describes an error, also for clients: without paths and addresses
 */
export function createHealth(logger: Logger, where: string, explain: (cause: unknown) => string): Health {
  const problems: Record<Side, string | null> = { read: null, write: null };
  return {
    failed(side, cause) {
      const problem = explain(cause);
      if (problems[side] !== problem) {
        logger.error({ err: cause }, `${where} cannot ${side}: ${problem} (${messageOf(cause)})`);
      }
      problems[side] = problem;
      const error = unavailable(`storage is unavailable: ${problem}`);
      error.cause = cause;
      return error;
    },
    worked(side) {
      if (problems[side] === null) return;
      problems[side] = null;
      logger.info(`${where} can ${side} again`);
    },
    problem: (side) => problems[side],
  };
}
