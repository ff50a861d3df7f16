/** What `memory:` keeps is bounded in bytes, whatever it is: each kind of rows by itself, and all of them together. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { EVERYTHING } from "../../core/identity/principal.ts";
import { openDomain } from "../../core/memory/memories.ts";
import { Responses } from "../../core/openai/responses.ts";
import { KeptReplies } from "../../core/storage/kept-replies.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { openTraces } from "../../core/traces/open.ts";
import { openMemories, said, textsOf } from "../support/memories.ts";
import { until } from "../support/probe.ts";
import { silent } from "../support/providers.ts";
import { record } from "../support/spans.ts";

const MIB = 1024 * 1024;
const SIGNAL = new AbortController().signal;
const LONG = "x".repeat(100_000);

const heldBy = (store: Store, spaces: readonly string[]) =>
  spaces.reduce((sum, space) => sum + (store.held?.(space) ?? 0), 0);
const REPLIES = ["ik/", "it/"];
const RESPONSES = ["rs/", "rt/"];
const TRACES = ["th/", "td/", "tl/", "tf/"];
const CONVERSATIONS = ["c/", "id/", "iu/", "u/", "r/"];

async function claim(replies: KeptReplies, id: string) {
  const taken = await replies.take({ id, fingerprint: "f" }, SIGNAL);
  assert.ok("settle" in taken, id);
  return taken;
}

const keep = async (replies: KeptReplies, id: string) =>
  (await claim(replies, id)).settle({ status: 200, headers: [], body: LONG });

test("replies to an Idempotency-Key in memory: take 16 MiB together: the oldest go, and none of a request that is at work", async (t) => {
  const store = createMemoryStore();
  const replies = new KeptReplies(store, null, silent);
  t.after(() => replies.close());
  const working = await claim(replies, "working");
  const named = await replies.name({ id: "named", fingerprint: "f" }, SIGNAL);
  for (let count = 0; count < 300; count++) await keep(replies, `r${count}`);
  assert.ok(heldBy(store, REPLIES) > 28 * MIB);
  replies.start();
  await until(() => heldBy(store, REPLIES) <= 16 * MIB, "room");
  assert.ok(heldBy(store, REPLIES) > 15 * MIB, "no more than is needed");
  assert.equal(
    (await store.scan({ prefix: "ik/", limit: 500 })).length,
    (await store.scan({ prefix: "it/", limit: 500 })).length,
  );
  assert.ok("body" in (await replies.take({ id: "r299", fingerprint: "f" }, SIGNAL)), "the newest is kept");
  assert.ok(await store.get("ik/working"));
  const again = await replies.name({ id: "named", fingerprint: "f" }, SIGNAL);
  assert.deepEqual(
    [again.isRepeated, again.runId],
    [true, named.runId],
    "one that names a run goes after those with replies",
  );
  await working.free();
  await claim(replies, "r0");
});

test("POST /v1/responses with memory: stored responses take 16 MiB together: the oldest go, and none that is in progress", async (t) => {
  const store = createMemoryStore();
  const manifest = { history: { retention: 3_600_000 } };
  const responses = new Responses(manifest as never, { store, runs: null as never, logger: silent });
  t.after(() => responses.close());
  const create = (id: string, status: string) => {
    const record = { resource: { id, status }, owner: "", createdAt: Date.now(), input: [], chain: [], text: LONG };
    return responses.rows.write(id, undefined, record as never);
  };
  await create("resp_working", "in_progress");
  for (let count = 0; count < 300; count++) await create(`resp_${count}`, "completed");
  responses.start();
  await until(() => heldBy(store, RESPONSES) <= 16 * MIB, "room");
  assert.ok(heldBy(store, RESPONSES) > 15 * MIB, "no more than is needed");
  const left = await store.scan({ prefix: "rs/", limit: 500 });
  assert.equal((await store.scan({ prefix: "rt/", limit: 500 })).length, left.length);
  assert.ok(left.some(({ key }) => key === "rs/resp_working") && left.some(({ key }) => key === "rs/resp_299"));
  assert.equal(await responses.lookUp("resp_0", EVERYTHING), undefined);
});

test("traces in memory: take 16 MiB of the heap, also when many short ones come one by one", async (t) => {
  const store = createMemoryStore();
  const observability = { sample: 1, retention: 7 * 86_400_000, size: 64 * MIB };
  const traces = openTraces({ name: "T", version: "1", observability } as never, store, silent);
  t.after(() => traces.close());
  while (heldBy(store, TRACES) < 20 * MIB) {
    record(traces.sink);
    await traces.status();
  }
  traces.start();
  await until(() => heldBy(store, TRACES) <= 16 * MIB, "room");
  assert.ok(heldBy(store, TRACES) > 15 * MIB, "no more than is needed");
});

test("rows in memory: take 42 MiB together: conversations that nobody uses make room for other rows, down to their share", async (t) => {
  const store = createMemoryStore();
  const domain = openDomain(store, { isolated: false });
  const replies = new KeptReplies(store, null, silent);
  t.after(() => Promise.all([domain.close(), replies.close()]));
  const access = (await domain.memories({ memory: { default: {} } } as never)).get("default")!.for(EVERYTHING);
  for (let count = 0; count < 480; count++) {
    await access.create({ id: `c${count}`, userId: "ada", resourceId: "desk" });
    await access.save([{ conversationId: `c${count}`, message: said(LONG) }]);
  }
  const before = heldBy(store, CONVERSATIONS);
  assert.ok(before > 40 * MIB, `${before} bytes are kept while there is nothing else`);
  for (let count = 0; count < 100; count++) await keep(replies, `r${count}`);
  domain.start();
  replies.start();
  const all = () => heldBy(store, [...CONVERSATIONS, ...REPLIES]);
  await until(() => all() <= 42 * MIB, "room");
  assert.ok(heldBy(store, CONVERSATIONS) >= 16 * MIB && heldBy(store, REPLIES) >= 4 * MIB, "both keep their share");
  assert.deepEqual(await textsOf(access, "c479"), [LONG]);
});

test("DELETE of a user's last conversation leaves no counter of that user in memory:", async () => {
  const store = createMemoryStore();
  const { access } = await openMemories({ store });
  for (let count = 0; count < 100; count++) {
    const [id, userId] = [`c${count}`, `user-${count}`];
    await access.create({ id, userId, resourceId: userId });
    await access.delete(id);
  }
  await access.create({ id: "kept", userId: "ada", resourceId: "desk" });
  const left = (await store.scan({ prefix: "n/", limit: 1_000 })).map(({ key }) => key);
  assert.deepEqual(left, ["n/default/r/desk", "n/default/u/ada"]);
});
