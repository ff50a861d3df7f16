/** What those who asked for a run are told when there is no result. */
import { ServiceError } from "../lib/errors.ts";

export class RunIdTaken extends ServiceError {
  constructor(id: string) {
    super("conflict", `options.runId: ${JSON.stringify(id)} is taken`);
  }
}

export const runCancelled = () => new ServiceError("conflict", "the run was cancelled");

export const runInterrupted = (id: string) =>
  new ServiceError("unavailable", "the run has been interrupted: it goes on when the server is back", {
    headers: { "retry-after": "1", "x-run-id": id },
  });
