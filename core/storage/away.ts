/** What waits for a store that is away, since nobody would ask for it again. */
import { ServiceError } from "../lib/errors.ts";

/** The pause doubles with each try. */
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;

/** Whether the store is temporarily unavailable. Any other error would occur again with the next try. */
export const isStoreUnavailable = (error: unknown): error is ServiceError =>
  error instanceof ServiceError && error.kind === "unavailable";

interface WaitOptions {
  /** Called with every failure. */
  report(error: ServiceError, isFirst: boolean): void;
  /** Whether to stop trying. */
  isOver(): boolean;
}

/**
 * Does something, again until the store is back.
 *
 * @param error of a first try that was made already
 * @throws the last failure once `isOver`, and any other error
 */
export async function whileAway<T>(work: () => Promise<T>, options: WaitOptions, error?: unknown): Promise<T> {
  for (let delay = FIRST_PAUSE_MS; ; delay = Math.min(delay * 2, LONGEST_PAUSE_MS)) {
    try {
      if (error === undefined) return await work();
    } catch (thrown) {
      error = thrown;
    }
    if (!isStoreUnavailable(error)) throw error;
    options.report(error, delay === FIRST_PAUSE_MS);
    await new Promise((resolve) => setTimeout(resolve, delay));
    if (options.isOver()) throw error;
    error = undefined;
  }
}
