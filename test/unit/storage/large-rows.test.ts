/** Walks over large rows: however many there are, no read gives more than a little of them. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { listTasks } from "../../../core/a2a/requests.ts";
import type { TaskRecord } from "../../../core/a2a/task.ts";
import { newTaskId } from "../../../core/a2a/task-ids.ts";
import { TaskRows } from "../../../core/a2a/task-rows.ts";
import { HistoryMaintenance, StoredHistories } from "../../../core/agents/history/open.ts";
import { DEFAULT_SETTINGS } from "../../../core/agents/run/options.ts";
import { emptyRunResult } from "../../../core/agents/run/run.ts";
import { EVERYTHING } from "../../../core/identity/principal.ts";
import { type Serialized, SerializedStream } from "../../../core/lib/serialized.ts";
import { storedMessages } from "../../../core/memory/semantic/stored-messages.ts";
import { executionKey } from "../../../core/storage/keys.ts";
import { createNamespaces } from "../../../core/storage/keyv-namespace.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { allRows, BYTES_PER_READ, inTurn, pagesInBackground } from "../../../core/storage/ranges.ts";
import type { Row, Store } from "../../../core/storage/store.ts";
import { RemoteExecutions } from "../../../core/workflows/list/list.ts";
import { ExecutionRetention } from "../../../core/workflows/retention.ts";
import { silent } from "../../support/agents.ts";
import { openRows, putExecutions, type Sample, startOf } from "../../support/executions.ts";
import { openMemories, said, textsOf } from "../../support/memories.ts";

const ROWS = 40;
const CHARACTERS = 200_000;
const LARGE = "x".repeat(CHARACTERS);
/** One row more than a read may give. */
const MOST = BYTES_PER_READ + 2 * CHARACTERS;
const DAY = 86_400_000;

/** A store that knows how many characters the largest of its reads gave, and of all commits how many the largest took. */
function weighed(store = createMemoryStore()): Store & { most: number; mostWritten: number } {
  const weigh = <T extends readonly (Row | undefined)[]>(rows: T): T => {
    weighed.most = Math.max(
      weighed.most,
      rows.reduce((sum, row) => sum + (row?.value.length ?? 0), 0),
    );
    return rows;
  };
  const weighed: Store & { most: number; mostWritten: number } = {
    ...store,
    most: 0,
    mostWritten: 0,
    get: async (key) => weigh([await store.get(key)])[0],
    getMany: async (keys, longest) => weigh(await store.getMany(keys, longest)),
    scan: async (range) => weigh(await store.scan(range)),
    commit: (commit) => {
      const written = (commit.put ?? []).reduce((sum, [, value]) => sum + value.length, 0);
      weighed.mostWritten = Math.max(weighed.mostWritten, written);
      return store.commit(commit);
    },
  };
  return weighed;
}

async function filled() {
  const store = weighed();
  for (let n = 0; n < ROWS; n++) await store.commit({ put: [[`k/${1000 + n}`, JSON.stringify(`${n} ${LARGE}`)]] });
  return store;
}

const numberOf = ({ value }: Row) => Number.parseInt(value.slice(1), 10);

test("allRows and pagesInBackground give every large row whole and in order, a little at a time", async () => {
  const store = await filled();
  const { signal } = new AbortController();
  for (const reverse of [false, true])
    for (const walk of [
      allRows(store, { prefix: "k/", reverse }, 25),
      pagesInBackground(store, { prefix: "k/", reverse }, 25, signal),
    ]) {
      const found: Row[] = [];
      for await (const rows of walk) {
        assert.ok(rows.reduce((sum, { value }) => sum + value.length, 0) <= MOST);
        found.push(...rows);
      }
      const numbers = Array.from({ length: ROWS }, (_, n) => n);
      assert.deepEqual(found.map(numberOf), reverse ? numbers.reverse() : numbers);
      assert.ok(found.every(({ value, size }) => size === undefined && value.length > CHARACTERS));
    }
  assert.ok(store.most <= MOST, `${store.most} characters in one read`);
});

test("allRows leaves out a large row that is deleted during the walk, and gives one as it was written meanwhile", async () => {
  const store = await filled();
  const found: Row[] = [];
  for await (const rows of allRows(store, { prefix: "k/" })) {
    if (found.length === 0)
      await store.commit({ delete: ["k/1020"], put: [["k/1021", JSON.stringify(`-1 ${LARGE}`)]] });
    found.push(...rows);
  }
  const numbers = Array.from({ length: ROWS }, (_, n) => (n === 21 ? -1 : n)).filter((n) => n !== 20);
  assert.deepEqual(found.map(numberOf), numbers);
  assert.equal(found.find((row) => numberOf(row) === -1)?.revision, (await store.get("k/1021"))?.revision);
});

test("large rows are read by two readers at a time, and by the others in their order", async () => {
  const done: number[] = [];
  let reading = 0;
  let most = 0;
  await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      inTurn(async () => {
        most = Math.max(most, ++reading);
        await sleep(1);
        reading--;
        done.push(n);
        if (n === 3) throw new Error("3 fails");
      }).catch((error: Error) => assert.equal(error.message, "3 fails")),
    ),
  );
  assert.equal(most, 2);
  assert.deepEqual(
    done.toSorted((a, b) => a - b),
    Array.from({ length: 20 }, (_, n) => n),
  );
  assert.ok(done.indexOf(19) >= 17 && done.indexOf(0) <= 2, String(done));
});

/** An execution with a large input. */
function large(sample: Sample): [string, string][] {
  const [[key, value] = ["", ""]] = openRows(sample);
  const input = JSON.stringify(startOf(sample).input);
  return [[key, value.replace(input, JSON.stringify({ amount: LARGE }))]];
}

test("the retention of executions removes large ones without holding many at once", async () => {
  const store = weighed();
  const samples = Array.from({ length: ROWS }, (_, n): Sample => {
    return { number: n + 1, status: "completed", at: 1_000, metadata: { text: LARGE }, userId: "ada" };
  });
  await putExecutions(store, samples);
  store.most = 0;
  const options = { workflows: new Map(), otherWorkflows: DAY, logger: silent };
  await new ExecutionRetention(store, options).removeExpired(3 * DAY);
  assert.deepEqual(
    (await store.getMany(samples.map(({ number }) => executionKey(number)))).filter((row) => row !== undefined),
    [],
  );
  // The record has the metadata twice: for lists, and as what it began with.
  assert.ok(store.most <= MOST + CHARACTERS, `${store.most} characters in one read`);
});

test("RemoteExecutions.starts finds what other processes run without holding the inputs of many at once", async () => {
  const store = weighed();
  for (let n = 1; n <= ROWS; n++) await store.commit({ put: large({ number: n, status: "running", at: n }) });
  const starts = await new RemoteExecutions(store, () => new Set()).starts();
  assert.deepEqual(
    starts.map(({ number }) => number),
    Array.from({ length: ROWS }, (_, n) => ROWS - n),
  );
  assert.ok(store.most <= MOST, `${store.most} characters in one read`);
});

async function withRuns(t: TestContext, isolated: boolean) {
  const store = weighed();
  const histories = new StoredHistories(store, { retention: 30 * DAY, logger: silent, isolated });
  t.after(() => histories.close());
  const history = histories.forAgent("a");
  const memory = { ...DEFAULT_SETTINGS.memory, userId: "ada" };
  for (let n = 0; n < ROWS; n++) {
    history.end(history.begin(`run-${1000 + n}`, n, memory), "completed", { ...emptyRunResult(), text: LARGE });
    await sleep(1);
  }
  await history.page(0, 1);
  store.most = 0;
  return { store, history };
}

for (const owner of [undefined, "ada"])
  test(`StoredHistories.page of ${owner ?? "everybody"} sends large runs as it reads them, a little at a time`, async (t) => {
    const { store, history } = await withRuns(t, owner !== undefined);
    const page = await history.page(0, ROWS - 10, owner);
    assert.ok(page instanceof SerializedStream);
    const { entries, ...rest } = JSON.parse(await page.whole());
    assert.deepEqual(
      entries.map((entry: { input: number; output: string }) => entry.output === LARGE && entry.input),
      Array.from({ length: ROWS - 10 }, (_, n) => ROWS - 1 - n),
    );
    assert.deepEqual(rest, { total: ROWS, page: 0, limit: ROWS - 10 });
    assert.ok(store.most <= MOST, `${store.most} characters in one read`);
  });

test("the retention of an agent's history removes large runs without holding many at once", async (t) => {
  const { store, history } = await withRuns(t, true);
  const maintenance = new HistoryMaintenance(store, { retention: 30 * DAY, logger: silent });
  await maintenance.deleteRunsBefore(Date.now() + DAY);
  assert.deepEqual(JSON.parse(await ((await history.page(0, 10, "ada")) as Serialized).whole()).total, 0);
  assert.ok(store.most <= MOST, `${store.most} characters in one read`);
});

async function withMessages() {
  const store = weighed();
  const { access } = await openMemories({ store });
  await access.create({ id: "c", userId: "ada", resourceId: "r" });
  for (let n = 0; n < ROWS; n++)
    await access.save([{ conversationId: "c", userId: "ada", message: said(`${n} ${LARGE}`) }]);
  store.most = 0;
  store.mostWritten = 0;
  return { store, access };
}

test("reindexing reads large messages without holding many at once", async () => {
  const { store } = await withMessages();
  const found: number[] = [];
  for await (const { text } of storedMessages(store, "default")) found.push(Number.parseInt(text, 10));
  assert.deepEqual(
    found,
    Array.from({ length: ROWS }, (_, n) => n),
  );
  assert.ok(store.most <= MOST, `${store.most} characters in one read`);
});

test("access.clone copies large messages without holding many at once, and access.save replaces them likewise", async () => {
  const { store, access } = await withMessages();
  const { conversation, messageCount } = await access.clone("c", { includeMessages: true });
  assert.equal(messageCount, ROWS);
  assert.ok(store.most <= MOST, `${store.most} characters in one read`);
  assert.ok(store.mostWritten <= MOST, `${store.mostWritten} characters in one commit`);
  const { messages } = JSON.parse(await (await access.messages(conversation.id, { limit: ROWS })).whole());
  assert.deepEqual(
    messages.map((message: { parts: [{ text: string }] }) => Number.parseInt(message.parts[0].text, 10)),
    Array.from({ length: ROWS }, (_, n) => n),
  );
  store.most = 0;
  const again = messages.map(({ id }: { id: string }) => ({ conversationId: conversation.id, message: said("-", id) }));
  await access.save(again);
  assert.ok(store.most <= MOST, `${store.most} characters in one read`);
  assert.deepEqual(await textsOf(access, conversation.id), Array(ROWS).fill("-"));
});

test("A2A ListTasks ends a page early when its tasks are large, and goes on with the token", async () => {
  const store = weighed();
  const rows = new TaskRows(store, false);
  const tasks = {
    rows,
    find: (agent: string, id: string) => rows.read(agent, id),
    whole: async ({ task }: TaskRecord) => task,
  };
  const ids: string[] = [];
  const status = { state: "TASK_STATE_COMPLETED", timestamp: new Date(0).toISOString() } as const;
  for (let n = 0; n < ROWS; n++) {
    const id = newTaskId(n);
    ids.unshift(id);
    const task = {
      id,
      contextId: "c",
      status,
      artifacts: [{ artifactId: "text", parts: [{ text: LARGE }] }],
      history: [],
    };
    await rows.create({ agent: "a", owner: "", updatedAt: n, task });
  }
  const query = { contextId: undefined, state: undefined, after: undefined, pageSize: 100, includeArtifacts: true };
  const found: string[] = [];
  let pages = 0;
  let pageToken = "";
  do {
    const page = await listTasks(tasks, "a", { ...query, pageToken }, EVERYTHING);
    assert.ok(JSON.stringify(page.tasks).length < 5 * MOST);
    found.push(...page.tasks.map(({ id }) => id));
    pageToken = page.nextPageToken;
    pages++;
  } while (pageToken !== "");
  assert.deepEqual(found, ids);
  assert.ok(pages >= 3, `${pages} pages`);
});

test("host.keyv: entries that expire are swept without reading their values", async (t) => {
  const store = weighed();
  const namespaces = createNamespaces();
  namespaces.connect(store);
  const keyv = namespaces.keyv("n");
  for (let n = 0; n < 10; n++) await keyv.set(`k${n}`, LARGE, 1);
  const { now } = Date;
  t.mock.method(Date, "now", () => now() + 60_000);
  store.most = 0;
  await keyv.set("last", "1");
  assert.ok(store.most < CHARACTERS, `${store.most} characters in one read`);
  assert.equal((await store.scan({ prefix: "k", limit: 100 })).length, 1);
});
