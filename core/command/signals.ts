/** npm passes a signal of the terminal on, so that it arrives twice; a second one within this time is the same signal. */
export const SAME_SIGNAL_WINDOW_MS = 1_000;

/** How long after its work the process ends, even if a plugin has left timers behind. */
const EXIT_TIMEOUT_MS = 1_000;

/** Ends the process by force unless it ends by itself, which it does when nothing is left to do. */
export function endWith(code: number): number {
  setTimeout(() => process.exit(code), EXIT_TIMEOUT_MS).unref();
  return code;
}
