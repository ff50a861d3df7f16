/** Whether an engine works: one log line when it stops working, one when it works again, and an error for clients between. */
import type { Logger } from "pino";
import { messageOf, type ServiceError, unavailable } from "../lib/errors.ts";

/** Reads go on where writes fail: on a full disk, for one. */
export type Side = "read" | "write";

export interface Health {
  /** What a call is answered when the engine threw `cause`. Logged when it is news. */
  failed(side: Side, cause: unknown): ServiceError;
  worked(side: Side): void;
  /** Why `side` does not work, as it turned out the last time; null when it did. */
  problem(side: Side): string | null;
}

/**
 * @param where what logs call the store: `sqlite:data/penstock.db`
 * @param explain what went wrong, for clients too: without paths and addresses
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
