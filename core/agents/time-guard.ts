/** Runs what strangers' schemas and patterns make us compute, and gives up on it after a while. */
import { createContext, Script } from "node:vm";

/** Thrown when the work took too long. */
export class TooSlowError extends Error {
  override readonly name = "TooSlowError";
}

export type TimeGuard = <T>(work: () => T, milliseconds: number) => T;

/**
 * A guard that can stop synchronous work, a regular expression that backtracks for ever included: V8's own watchdog ends
 * it. That costs about 0.1 ms a call, so it is for what a client wrote, not for what the manifest says.
 */
export function createTimeGuard(): TimeGuard {
  const room = createContext({ work: null as (() => void) | null });
  const script = new Script("work()");
  return <T>(work: () => T, milliseconds: number): T => {
    let result: T | undefined;
    room.work = () => {
      result = work();
    };
    try {
      script.runInContext(room, { timeout: milliseconds });
    } catch (error) {
      if ((error as { code?: string }).code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw error;
      throw new TooSlowError(`it takes longer than ${milliseconds} ms`);
    } finally {
      room.work = null;
    }
    return result as T;
  };
}
