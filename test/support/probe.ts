/** Calls of the step plugin `probe` and of the tool `linger` (test/fixtures/plugins), as a test sees and steers them. */
import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { TestContext } from "node:test";
import type { StepContext } from "../../core/plugin/plugin.ts";

const CHANNEL = "penstock:test:probe";
/** Milliseconds until a call that does not come is missed: a hang, and not a slow machine. */
const HANG_MS = 240_000;

export interface ProbeCall {
  /** Of steps alone. */
  readonly context: StepContext;
  readonly executionId: string;
  readonly path: string;
  /** What its signal aborted with. */
  readonly aborted: unknown;
  release(output?: unknown): void;
  fail(message: string): void;
}

export interface Probe {
  /** All calls so far, in order. */
  readonly calls: ProbeCall[];
  /** Paths of the calls so far. */
  paths(executionId?: string): string[];
  /** The next call of a step that was not waited for yet. */
  next(path: string, executionId?: string): Promise<ProbeCall>;
}

/** Watches until the test ends. */
export function watchProbe(test: Pick<TestContext, "after">): Probe {
  const calls: ProbeCall[] = [];
  const seen = new Set<ProbeCall>();
  const heard = (call: unknown) => void calls.push(call as ProbeCall);
  subscribe(CHANNEL, heard);
  test.after(() => unsubscribe(CHANNEL, heard));
  const ofExecution = (id: string | undefined) => calls.filter((call) => id === undefined || call.executionId === id);
  return {
    calls,
    paths: (id) => ofExecution(id).map(({ path }) => path),
    async next(path, id) {
      let found: ProbeCall | undefined;
      await until(() => {
        found = ofExecution(id).find((call) => call.path === path && !seen.has(call));
        return found !== undefined;
      }, `a call of ${path}`);
      seen.add(found!);
      return found!;
    },
  };
}

/** Waits for something to become true. */
export async function until(holds: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const end = Date.now() + HANG_MS;
  while (!(await holds())) {
    assert.ok(Date.now() < end, `${what} did not come`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
