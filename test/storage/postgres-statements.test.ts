/** How many statements and round trips an operation of the API costs on PostgreSQL. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import pg from "pg";
import { CommitConflict } from "../../core/lib/errors.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { NO_POSTGRES, type PostgresServer, sharedPostgres } from "../support/postgres.ts";
import { COMMIT_MODES } from "../support/postgres-modes.ts";
import { silent } from "../support/providers.ts";
import { manifestWith, startService } from "../support/service.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
const db = server as PostgresServer;
after(() => server?.close());

interface Counted {
  reads: number;
  commits: number;
}

/** Statements that the driver sends while `work` runs; each is a round trip. */
async function counted(t: TestContext, work: () => Promise<unknown>): Promise<string[]> {
  const sent: string[] = [];
  const { query } = pg.Client.prototype;
  const mock = t.mock.method(pg.Client.prototype, "query", function (this: object, ...args: unknown[]) {
    const [statement] = args as [string | { name?: string; text: string }];
    sent.push(typeof statement === "string" ? statement : (statement.name ?? statement.text));
    return Reflect.apply(query, this, args);
  });
  try {
    await work();
  } finally {
    mock.mock.restore();
  }
  return sent;
}

const summary = (sent: readonly string[]): Counted => ({
  reads: sent.filter((name) => /^penstock-(?:get|scan|tail)/.test(name)).length,
  commits: sent.filter((name) => name === "penstock-commit").length,
});

test("store postgres: a commit, or a hundred at once, whatever they do: one statement", { skip }, async (t) => {
  const store = await openPostgresStore(await db.createDatabase(t), { logger: silent });
  t.after(() => store.close());
  const revision = await store.commit({ put: [["a", "1"]] });
  const all = {
    put: [["b", "1"] as const],
    delete: ["c"],
    clear: ["d/"],
    add: [["n", 1] as const],
    expect: [["a", revision] as const, ["e", null] as const],
  };
  assert.deepEqual(await counted(t, () => store.commit(all)), ["penstock-commit"]);
  const many = () =>
    Array.from({ length: 100 }, (_, index) => store.commit({ put: [[`m/${index}`, "1"]], add: [["n", 1]] }));
  assert.deepEqual(await counted(t, () => Promise.all(many())), ["penstock-commit"]);
  const lost = () => assert.rejects(store.commit({ put: [["a", "2"]], expect: [["a", null]] }), CommitConflict);
  assert.deepEqual(await counted(t, lost), ["penstock-commit"], "one whose expectation fails");
  const group = () => Promise.all([lost(), ...many()]);
  assert.deepEqual(await counted(t, group), ["penstock-commit", "penstock-commit"], "a group with such a one");
});

test("store postgres: a commit of a user who may not make the function: a few statements more", { skip }, async (t) => {
  const { url } = await COMMIT_MODES.find(({ name }) => name === "in steps")!.createDatabase(db, t);
  const store = await openPostgresStore(url, { logger: silent });
  t.after(() => store.close());
  await store.commit({ put: [["a", "1"]] });
  const sent = await counted(t, () => store.commit({ put: [["b", "1"]], delete: ["c"], expect: [["b", null]] }));
  assert.deepEqual(sent.slice(1), ["penstock-wrong", "penstock-write", "penstock-remove", "COMMIT"]);
  assert.match(sent[0]!, /^BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock_shared\(.*; UPDATE /s);
});

/** At least so many of each request, and as many more as it takes until nothing else falls into one of them. */
const ROUNDS = 3;
const MOST_ROUNDS = 60;

const COSTS: Readonly<Record<string, Counted>> = {
  create: { reads: 0, commits: 1 },
  save: { reads: 0, commits: 1 },
  // One takes the conversation, so that no other process has a turn there meanwhile.
  text: { reads: 1, commits: 2 },
  execute: { reads: 0, commits: 1 },
  suspend: { reads: 0, commits: 1 },
  page: { reads: 1, commits: 0 },
  list: { reads: 3, commits: 0 },
  resume: { reads: 1, commits: 1 },
};

test("requests to a service on PostgreSQL: each commits in as few statements as it has steps with an effect", {
  skip,
}, async (t) => {
  const store = await db.createDatabase(t);
  const manifest = {
    ...manifestWith({ memory: "default" }, { store, memory: { default: {} } }),
    workflows: {
      w: { steps: [{ id: "s", andThen: { set: "{{ input }}" } }] },
      ask: { steps: [{ id: "s", andThen: { suspend: {} } }] },
    },
  };
  const service = await startService(t, manifest);
  const ok = async (reply: Promise<Response>) => {
    const { status } = await reply;
    assert.ok(status < 300, String(status));
    return (await (await reply).json()) as { data: { executionId: string } };
  };
  const memory = { conversationId: "talk", userId: "ann" };
  const create = (conversationId: string) => () =>
    ok(service.post("/api/memory/conversations", { conversationId, userId: "ann", resourceId: "desk" }));
  const save = () =>
    ok(service.post("/api/memory/save-messages", { ...memory, messages: [{ role: "user", content: "hello" }] }));
  const text = () => ok(service.post("/agents/assistant/text", { input: "hello", options: { memory } }));
  const execute = () => ok(service.post("/workflows/w/execute", { input: {} }));
  const page = () => ok(service.get("/api/memory/conversations/talk/messages?userId=ann&limit=200"));
  const list = () => ok(service.get("/api/memory/conversations?userId=ann"));
  for (const warm of [create("talk"), save, text, execute, page, list]) await warm();
  const suspended: string[] = [];
  const suspend = async () => {
    suspended.push((await ok(service.post("/workflows/ask/execute", { input: {} }))).data.executionId);
  };
  await suspend();
  const resume = () => ok(service.post(`/workflows/ask/executions/${suspended.pop()}/resume`, { resumeData: {} }));
  const operations = { create: create("other"), save, text, execute, suspend, page, list, resume } as const;
  const table: Record<string, Counted> = {};
  for (const [name, run] of Object.entries(operations)) {
    // Heartbeats, history and the like may fall into it: the least of some runs is the request's own.
    const least: Counted = { reads: Number.POSITIVE_INFINITY, commits: Number.POSITIVE_INFINITY };
    const { reads, commits } = COSTS[name]!;
    for (let round = 0; round < MOST_ROUNDS; round++) {
      if (round >= ROUNDS && least.reads <= reads && least.commits <= commits) break;
      if (name === "resume" && suspended.length === 0) await suspend();
      const cost = summary(await counted(t, name === "create" ? create(`other-${round}`) : run));
      least.reads = Math.min(least.reads, cost.reads);
      least.commits = Math.min(least.commits, cost.commits);
    }
    table[name] = least;
  }
  assert.deepEqual(table, COSTS);
});
