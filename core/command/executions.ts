/** The commands `executions list`, `end` and `retry`: operations on executions while the service is stopped. */
import { isVolatile, type Store } from "../storage/store.ts";
import { endExecution, letRecoverAgain, type NamedExecution, unfinishedExecutions } from "../workflows/offline.ts";
import type { Invocation } from "./invocation.ts";
import { withNamedStore } from "./named-store.ts";

const DEFAULT_REASON = "ended by hand";

/** Prints a header and one line per execution. */
export const list = (invocation: Invocation): Promise<number> =>
  withStore(invocation, async (store) => {
    print(["ID", "STATUS", "AGE", "RECOVERIES", "BYTES", "WORKFLOW", "USER"]);
    for await (const { start, status, recoveries, bytes } of unfinishedExecutions(store)) {
      const { id, at, workflowId, userId = "" } = start;
      print([id, status, ageOf(at), String(recoveries), String(bytes), workflowId, userId]);
    }
  });

/** Ends an execution with an error; it may be replayed like any other that failed. */
export const end = (invocation: Invocation): Promise<number> =>
  withStore(invocation, async (store) => {
    const { reason = DEFAULT_REASON } = invocation;
    await endExecution(store, named(invocation), reason);
    report(`${named(invocation).id}: ended with the error ${JSON.stringify(reason)}`);
  });

export const retry = (invocation: Invocation): Promise<number> =>
  withStore(invocation, async (store) => {
    await letRecoverAgain(store, named(invocation));
    report(`${named(invocation).id}: the next start takes it up`);
  });

const withStore = (invocation: Invocation, work: (store: Store) => Promise<void>): Promise<number> =>
  withNamedStore(invocation, async ({ open }) => {
    const store = await open();
    try {
      if (isVolatile(store)) throw new Error("the store keeps nothing that a command could find");
      await work(store);
      return 0;
    } finally {
      await store.close();
    }
  });

const named = ({ rest, user }: Invocation): NamedExecution => ({ id: rest[0]!, user });

const report = (line: string): void => void process.stdout.write(`${line}\n`);

const WIDTHS = [26, 9, 5, 10, 10];

const print = (columns: readonly string[]): void =>
  report(
    columns
      .map((text, index) => text.padEnd(WIDTHS[index] ?? 0))
      .join("  ")
      .trimEnd(),
  );

const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
] as const;

/** The age in the largest unit that fits. */
function ageOf(at: number): string {
  const age = Math.max(Date.now() - at, 0);
  const [unit, length] = UNITS.find(([, milliseconds]) => age >= milliseconds) ?? UNITS[3];
  return `${Math.floor(age / length)}${unit}`;
}
