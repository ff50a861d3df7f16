/** Time that a test can put forward, so that limits may be as long as a slow machine needs and nobody waits for them. */
import type { TestContext } from "node:test";

interface Timer {
  readonly due: number;
  readonly run: () => void;
}

interface JumpingClock {
  /** Time jumps: `performance.now` is later by so many milliseconds, and the timers that are due by then fire. */
  advance(milliseconds: number): void;
}

/** Until the test ends, `setTimeout` and `performance.now` go by a clock that runs as ever and can jump ahead. */
export function jumpingClock(test: TestContext): JumpingClock {
  const { setTimeout: start, clearTimeout: stop } = globalThis;
  const now = performance.now.bind(performance);
  const timers = new Map<NodeJS.Timeout, Timer>();
  let ahead = 0;
  test.mock.method(performance, "now", () => now() + ahead);
  test.mock.method(
    globalThis,
    "setTimeout",
    (callback: (...args: unknown[]) => void, delay = 0, ...args: unknown[]) => {
      const run = () => {
        timers.delete(timer);
        callback(...args);
      };
      const timer = start(run, delay);
      timers.set(timer, { due: now() + ahead + delay, run });
      return timer;
    },
  );
  test.mock.method(globalThis, "clearTimeout", (timer: NodeJS.Timeout | undefined) => {
    if (timer !== undefined) timers.delete(timer);
    stop(timer);
  });
  return {
    advance(milliseconds) {
      ahead += milliseconds;
      for (const [timer, { due, run }] of [...timers]) {
        // One that fired before may have stopped this one.
        if (due > now() + ahead || !timers.has(timer)) continue;
        stop(timer);
        run();
      }
    },
  };
}
