/** What one process asks of another, or reads of it, on a store that wakes the others: it comes although no poll is ever due. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, type TestContext, test } from "node:test";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { followRemoteExecution, stopRemoteExecution } from "../../core/workflows/cluster/requests.ts";
import { findExecution } from "../../core/workflows/journal/load.ts";
import { silent } from "../support/agents.ts";
import { type Collected, collectEvents } from "../support/event-sink.ts";
import { FIXTURES } from "../support/fixtures.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { until, watchProbe } from "../support/probe.ts";
import { soon } from "../support/providers.ts";
import { CALL, type Process, processesOf } from "../support/workflow-process.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
after(() => server?.close());

/** Longer than the test runs. */
const NEVER_MS = 600_000;
const TIMES = { heartbeatInterval: 1_000, leaseTimeout: NEVER_MS, stopRequestInterval: NEVER_MS };
const NO_POLLS = { first: NEVER_MS, longest: NEVER_MS };

const PROBE = readFileSync(join(FIXTURES, "steps/probe.mjs"), "utf8");
const MANIFEST = {
  workflows: {
    w: {
      steps: [
        { id: "one", andThen: { use: "probe", with: { hold: true } } },
        { id: "ask", andThen: { suspend: { reason: "Yes?" } } },
        { id: "two", andThen: { use: "probe", with: { hold: true } } },
        { id: "three", andThen: { use: "probe", with: { hold: true } } },
      ],
    },
  },
};

/** Two processes on one database; the second is what the store of the other one sees. */
async function twoProcesses(t: TestContext) {
  const url = await server!.createDatabase();
  const start = await processesOf(t, MANIFEST, { plugins: { "steps/probe.mjs": PROBE } });
  const boot = async () => {
    const store = await openPostgresStore(url, { logger: silent });
    const process = await start(store, { processTimes: TIMES });
    t.after(async () => {
      await process.opened.close();
      await store.close();
    });
    return { ...process, store };
  };
  return { one: await boot(), other: await boot(), probe: watchProbe(t) };
}

const execute = ({ access }: Process, id: string) =>
  access.execute("w", { input: {}, options: { executionId: id } }, CALL);
const found = async (store: Store, id: string) => (await findExecution(store, id))!;

test("POST .../cancel and .../suspend of an execution that another process runs stop it and are answered without a poll", {
  skip,
}, async (t) => {
  const { one, other, probe } = await twoProcesses(t);
  for (const kind of ["cancel", "suspend"] as const) {
    const executing = execute(one, kind);
    await probe.next("one", kind);
    const stopping = stopRemoteExecution(
      other.store,
      await found(other.store, kind),
      { kind, reason: "enough" },
      NO_POLLS,
    );
    const { status } = await soon(stopping, `the answer to ${kind}`);
    assert.equal(status, kind === "cancel" ? "cancelled" : "suspended");
    assert.equal(JSON.parse((await executing).json).status, status);
  }
});

test("GET .../stream of an execution that another process runs, and has resumed, gives every event without a poll", {
  skip,
}, async (t) => {
  const { one, other, probe } = await twoProcesses(t);
  const executing = execute(one, "e");
  (await probe.next("one", "e")).release({});
  assert.equal(JSON.parse((await executing).json).status, "suspended");
  // The approval comes to one process, and who reads is attached to the other.
  const resuming = one.access.resume("w", "e", { resumeData: {} }, CALL);
  const two = await probe.next("two", "e");
  const execution = await found(other.store, "e");
  const outline = await other.opened.engine.definitions.outline(execution.start.definition);
  const events: Collected[] = [];
  const following = collectEvents(
    followRemoteExecution(other.store, execution, outline, 0, NEVER_MS),
    (event) => void events.push(event),
  );
  const saw = (type: string, from: string) => () => events.some(({ data }) => data.type === type && data.from === from);
  await until(saw("step-start", "two"), "the start of two");
  two.release({});
  const three = await probe.next("three", "e");
  await until(saw("step-complete", "two"), "the end of two");
  await until(saw("step-start", "three"), "the start of three");
  three.release({ n: 1 });
  assert.equal(JSON.parse((await resuming).json).status, "completed");
  assert.equal((await soon(following, "the last event")).at(-1)!.data.status, "completed");
  assert.deepEqual(
    events.map(({ id }) => id),
    events.map((_event, index) => index + 1),
  );
});
