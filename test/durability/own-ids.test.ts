/** Executions of two users with one id, where processes end and others go on: each goes on as its own, and what it does is not taken for the other's. */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { executionIndex, executionNameKey, OPEN_EXECUTIONS, OWN_EXECUTION_NAMES } from "../../core/storage/keys.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { removeEnded } from "../../core/workflows/removal.ts";
import { silent } from "../support/agents.ts";
import { PENSTOCK, serve } from "../support/command-line.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import { SECRET, token } from "../support/tokens.ts";
import { CALL, cutStore, processesOf, refusal } from "../support/workflow-process.ts";

const ID = "order-1";
const USERS = ["ada", "bob"] as const;
const AUTH = { auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET }, consoleRoutes: [] } };

/** Writes down what it is called, and is held until a file is there. */
const STEP = (folder: string) => `import { appendFileSync, existsSync } from "node:fs";
  export default { kind: "step", async execute({ idempotencyKey, input }) {
    appendFileSync(${JSON.stringify(join(folder, "runs"))}, idempotencyKey + " " + input.by + "\\n");
    while (!existsSync(${JSON.stringify(join(folder, "go"))})) await new Promise((resolve) => setTimeout(resolve, 10));
    return { by: input.by }; } };`;

test("after kill -9 the executions of two users with the same options.executionId both go on, each with idempotency keys of its own", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "penstock-own-ids-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, "plugins/steps"), { recursive: true });
  writeFileSync(join(folder, "plugins/steps/hold.mjs"), STEP(folder));
  const workflows = { w: { steps: [{ id: "only", andThen: { use: "hold" } }] } };
  const manifest = { name: "Test", version: "1.0", store: "sqlite:own.db", plugins: ["plugins"], ...AUTH, workflows };
  writeFileSync(join(folder, "service.yaml"), JSON.stringify(manifest));
  const command = [
    process.execPath,
    PENSTOCK,
    "serve",
    "--config",
    join(folder, "service.yaml"),
    "--port",
    "0",
  ] as const;
  const headersOf = (sub: string) => ({
    authorization: `Bearer ${token({ sub })}`,
    "content-type": "application/json",
  });
  const runs = () =>
    existsSync(join(folder, "runs")) ? readFileSync(join(folder, "runs"), "utf8").trim().split("\n") : [];

  const first = await serve(t, [...command], { cwd: folder });
  for (const user of USERS) {
    const body = JSON.stringify({ input: { by: user }, options: { executionId: ID } });
    fetch(`${first.url}/workflows/w/execute`, { method: "POST", headers: headersOf(user), body }).catch(() => {});
  }
  await until(() => runs().length === 2, "both steps");
  await first.interrupt("SIGKILL");

  writeFileSync(join(folder, "go"), "");
  const second = await serve(t, [...command], { cwd: folder });
  for (const user of USERS) {
    const state = async () => {
      const reply = await fetch(`${second.url}/workflows/w/executions/${ID}/state`, { headers: headersOf(user) });
      return ((await reply.json()) as { data: { status: string; userId: string; input: object } }).data;
    };
    await until(async () => (await state()).status === "completed", `the execution of ${user}`);
    const { userId, input } = await state();
    assert.deepEqual([userId, input], [user, { by: user }]);
  }
  await second.interrupt("SIGTERM");
  // Each ran twice, by the same name both times, and that says nothing of its user.
  const keys = USERS.map((user) => runs().flatMap((run) => (run.endsWith(` ${user}`) ? [run.split(" ")[0]!] : [])));
  for (const own of keys) assert.deepEqual([own.length, new Set(own).size], [2, 1]);
  assert.notEqual(keys[0]![0], keys[1]![0]);
  for (const [key] of keys) assert.match(key!, /^order-1@\d+:only$/);
});

const MANIFEST = {
  ...AUTH,
  workflows: {
    w: { steps: [{ id: "only", andThen: { use: "never" } }] },
    quick: { steps: [{ id: "only", andThen: { set: { n: 1 } } }] },
    asks: { steps: [{ id: "only", andThen: { suspend: { reason: "Yes?" } } }] },
  },
};
const PLUGINS = {
  "steps/never.mjs": `export default { kind: "step", execute: ({ signal }) => new Promise((_resolve, reject) =>
    signal.addEventListener("abort", () => reject(new Error("stopped")))) };`,
};
const input = { input: { a: 1 }, options: { executionId: ID } };
const as = (userId: string) => ({ userId, isolated: true });

const server = await sharedPostgres();
const SHARED: Record<string, (() => Promise<() => Promise<Store>>) | null> = {
  "a store that is shared": async () => {
    const store = createMemoryStore();
    return async () => ({ ...store, kind: "shared" });
  },
  postgres:
    server &&
    (async () => {
      const url = await server.createDatabase();
      return () => openPostgresStore(url, { logger: silent });
    }),
};

for (const [kind, database] of Object.entries(SHARED)) {
  test(`${kind}: a cancel and a state that another process asks for are about the caller's own execution of the id`, {
    skip: database === null ? NO_POSTGRES : false,
  }, async (t) => {
    const start = await processesOf(t, MANIFEST, { plugins: PLUGINS });
    const openStore = await database!();
    const processes = [];
    for (let count = 0; count < 2; count++) {
      const store = await openStore();
      const { opened } = await start(store, {
        processTimes: { heartbeatInterval: 1_000, leaseTimeout: 60_000, stopRequestInterval: 20 },
      });
      t.after(() => opened.close().then(() => store.close()));
      processes.push({ store, opened });
    }
    const [one, other] = processes;
    // What waits here for another process does not keep this one alive.
    const alive = setInterval(() => {}, 1_000);
    t.after(() => clearInterval(alive));
    for (const user of USERS)
      one!.opened.workflows
        .for(as(user))
        .execute("w", input, CALL)
        .catch(() => {});
    const [hers, his] = USERS.map((user) => other!.opened.workflows.for(as(user)));
    await until(
      async () => (await one!.store.scan({ prefix: OPEN_EXECUTIONS, limit: 9 })).length === 2,
      "the beginning of both",
    );
    // Each user has one, in the other process too.
    assert.equal((await refusal(hers!.execute("w", input, CALL))).kind, "conflict");
    assert.equal((await hers!.cancel("w", ID, "enough")).status, "cancelled");
    assert.equal((await his!.state("w", ID)).status, "running");
    assert.equal((await hers!.state("w", ID)).status, "cancelled");
    assert.equal((await his!.suspend("w", ID, "later")).status, "suspended");
    assert.equal((await hers!.state("w", ID)).status, "cancelled");
  });
}

test("what another process left running of two users with one id is taken up as two executions", async (t) => {
  const base = createMemoryStore();
  const start = await processesOf(t, MANIFEST, { plugins: PLUGINS });
  const dying = cutStore(base, "sqlite");
  const { opened } = await start(dying);
  for (const user of USERS)
    opened.workflows
      .for(as(user))
      .execute("w", input, CALL)
      .catch(() => {});
  await until(
    async () => (await base.scan({ prefix: OPEN_EXECUTIONS, limit: 9 })).length === 2,
    "the beginning of both",
  );
  dying.arm(0);
  const next = await start({ ...base, kind: "sqlite" });
  t.after(() => next.opened.close());
  assert.equal(next.opened.engine.live.size, 2);
  for (const user of USERS)
    assert.equal((await next.opened.workflows.for(as(user)).cancel("w", ID, "enough")).status, "cancelled");
});

test("retention: the row of an id goes with its own execution, and not with another user's of the same id", async (t) => {
  const store = createMemoryStore();
  const start = await processesOf(t, MANIFEST, { plugins: PLUGINS });
  const { opened } = await start({ ...store, kind: "sqlite" });
  t.after(() => opened.close());
  // Nobody's too, whose head is read in another way.
  const nobody = { userId: null, isolated: true };
  await opened.workflows.for(as("ada")).execute("quick", input, CALL);
  await opened.workflows.for(nobody).execute("quick", input, CALL);
  await opened.workflows.for(as("bob")).execute("asks", input, CALL);
  const names = async () => (await store.scan({ prefix: OWN_EXECUTION_NAMES, limit: 9 })).map(({ key }) => key);
  assert.deepEqual(
    await names(),
    ["", "ada", "bob"].map((user) => executionNameKey(ID, user)),
  );
  await removeEnded(
    store,
    "completed",
    { prefix: executionIndex("completed") },
    Number.POSITIVE_INFINITY,
    new AbortController().signal,
  );
  assert.deepEqual(await names(), [executionNameKey(ID, "bob")]);
  await opened.workflows.for(as("ada")).execute("quick", input, CALL);
  assert.equal((await opened.workflows.for(as("bob")).state("asks", ID)).status, "suspended");
});

after(() => server?.close());
