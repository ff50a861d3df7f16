/** Failures in the log: each has one line, wherever it is handed on. */
import type { Logger } from "pino";
import { messageOf, ServiceError, STATUS } from "../lib/errors.ts";

/** What runs of agents have failed of, which has its line. */
const TOLD = new WeakSet<object>();

/** Logs what a client is told, unless the line of a run has it: an error of ours, and what has a cause. */
export function logError(logger: Logger, thrown: unknown, about: object = {}): void {
  if (TOLD.has(thrown as object)) return;
  if (!(thrown instanceof ServiceError)) logger.error({ ...about, err: thrown }, messageOf(thrown));
  else if (thrown.cause !== undefined) logger.warn({ ...about, ...thrown.logged, err: thrown.cause }, thrown.message);
}

/** Logs that a run of an agent has failed, unless it was refused: by what it asked for, or because there is no room. */
export function logFailedRun(logger: Logger, thrown: unknown, runId: string): void {
  const text = `the run failed: ${messageOf(thrown)}`;
  if (!(thrown instanceof ServiceError)) logger.error({ runId, code: "internal", err: thrown }, text);
  else {
    const { kind: code, cause: err, logged } = thrown;
    if (STATUS[code] < 500 || (code === "unavailable" && err === undefined)) return;
    logger.warn({ runId, code, ...logged, err }, text);
  }
  if (thrown instanceof Object) TOLD.add(thrown);
}
