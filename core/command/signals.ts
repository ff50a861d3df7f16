/** npm passes a signal of the terminal on, so that it arrives twice; a second one within this time is the same signal. */
export const SAME_SIGNAL_WINDOW_MS = 1_000;
