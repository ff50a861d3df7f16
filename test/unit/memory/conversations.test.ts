import assert from "node:assert/strict";
import { test } from "node:test";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { everyRow, listed, openMemories, pageOf, rejectsAs, said } from "../../support/memories.ts";

const ADA = { userId: "ada", resourceId: "desk" };

test("a conversation comes back as it was made, with an id and times of its own", async () => {
  const { access } = await openMemories({ now: () => Date.UTC(2026, 10, 20, 8) });
  const made = await access.create({ ...ADA, title: "Order", metadata: { channel: "web" } });
  const { id, ...rest } = made;
  assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const time = "2026-11-20T08:00:00.000Z";
  assert.deepEqual(rest, { ...ADA, title: "Order", metadata: { channel: "web" }, createdAt: time, updatedAt: time });
  assert.deepEqual(await access.get(id), made);
});

test("title and metadata default to nothing, and ids may be any text", async () => {
  const { access } = await openMemories();
  for (const id of ["a/b", "ü ✓", "\0", "x".repeat(2000), `${"x".repeat(2000)}y`, "__proto__", '"\\']) {
    const made = await access.create({ id, ...ADA, userId: `u${id}`, resourceId: `r${id}` });
    assert.deepEqual([made.id, made.title, made.metadata], [id, "", {}]);
    await access.save([{ conversationId: id, message: said("hello", id) }]);
    const page = await pageOf(access, id);
    assert.deepEqual([page.conversation.id, page.messages.length, page.messages[0]?.id], [id, 1, id]);
    assert.equal((await listed(access.list({ ...FIRST, userId: `u${id}` }))).conversations[0]?.id, id);
    assert.equal(await access.deleteMessages(id, [id]), 1);
  }
});

const FIRST = { limit: 50, offset: 0, orderBy: "updated_at", orderDirection: "DESC" } as const;

test("an id that is taken is a conflict, in another process too, and free again once it is deleted", async () => {
  const store = createMemoryStore();
  const [one, two] = await Promise.all([openMemories({ store }), openMemories({ store })]);
  await one.access.create({ id: "c", ...ADA });
  await rejectsAs(one.access.create({ id: "c", ...ADA }), "conflict", /"c" exists already/);
  await rejectsAs(two.access.create({ id: "c", ...ADA, userId: "bob" }), "conflict");
  await two.access.save([{ conversationId: "c", message: said("old") }]);
  await one.access.delete("c");
  await rejectsAs(two.access.get("c"), "not_found", /"c" does not exist/);
  await two.access.create({ id: "c", ...ADA, userId: "bob" });
  assert.equal((await one.access.get("c")).userId, "bob");
  assert.deepEqual((await pageOf(one.access, "c")).messages, []);
});

test("of many who create one id at once exactly one succeeds", async () => {
  const store = createMemoryStore();
  const [one, two] = await Promise.all([openMemories({ store }), openMemories({ store })]);
  const tries = [one, two, one, two].map(({ access }) => access.create({ id: "c", ...ADA }));
  const ends = await Promise.allSettled(tries);
  assert.equal(ends.filter((end) => end.status === "fulfilled").length, 1);
  assert.equal((await listed(one.access.list(FIRST))).total, 1);
});

test("memories are apart: the same id is another conversation in each", async () => {
  const { named } = await openMemories({ memory: { default: {}, private: {} } });
  const [one, two] = [named("default"), named("private")].map((memory) =>
    memory.for({ userId: null, isolated: false }),
  );
  await one!.create({ id: "c", ...ADA, title: "one" });
  await two!.create({ id: "c", ...ADA, title: "two" });
  await two!.save([{ conversationId: "c", message: said("hello") }]);
  assert.deepEqual((await pageOf(one!, "c")).messages, []);
  await two!.delete("c");
  assert.equal((await one!.get("c")).title, "one");
  assert.deepEqual([(await listed(one!.list(FIRST))).total, (await listed(two!.list(FIRST))).total], [1, 0]);
});

test("a change merges metadata key by key, null deletes one, and updatedAt follows", async () => {
  let now = 1000;
  const { access } = await openMemories({ now: () => now });
  await access.create({ id: "c", ...ADA, title: "Old", metadata: { a: 1, b: { x: 1 }, c: 3 } });
  now = 2000;
  const changed = await access.update("c", { metadata: { b: { y: 2 }, c: null, d: null, e: false } });
  assert.deepEqual(changed.metadata, { a: 1, b: { y: 2 }, e: false });
  assert.deepEqual([changed.title, changed.createdAt, changed.updatedAt], ["Old", iso(1000), iso(2000)]);
  const renamed = await access.update("c", { title: "New" });
  assert.deepEqual([renamed.title, renamed.metadata], ["New", { a: 1, b: { y: 2 }, e: false }]);
  assert.deepEqual(await access.get("c"), renamed);
  await rejectsAs(access.update("none", { title: "x" }), "not_found");
});

test("keys like __proto__ are keys of metadata like any other", async () => {
  const { access } = await openMemories();
  await access.create({ id: "c", ...ADA, metadata: JSON.parse('{"__proto__": {"a": 1}}') });
  await access.update("c", { metadata: JSON.parse('{"__proto__": {"b": 2}, "constructor": 1}') });
  assert.equal(JSON.stringify((await access.get("c")).metadata), '{"__proto__":{"b":2},"constructor":1}');
  assert.equal(({} as { b?: number }).b, undefined);
});

test("a clock that goes back does not make updatedAt go back, nor new messages older than old ones", async () => {
  const store = createMemoryStore();
  let now = 5000;
  const first = await openMemories({ store, now: () => now });
  await first.access.create({ id: "c", ...ADA });
  await first.access.save([{ conversationId: "c", message: said("one") }]);
  now = 1000;
  await first.access.save([{ conversationId: "c", message: said("two") }]);
  const later = await openMemories({ store, now: () => 2000 });
  await later.access.save([{ conversationId: "c", message: said("three") }]);
  const { conversation, messages } = await pageOf(later.access, "c");
  assert.deepEqual(
    messages.map((message) => message.createdAt),
    [iso(5000), iso(5001), iso(5002)],
  );
  assert.deepEqual(
    messages.map((message) => (message.parts![0] as { text: string }).text),
    ["one", "two", "three"],
  );
  assert.equal(conversation.updatedAt, iso(5000));
});

test("deleting a conversation leaves no row of it behind", async () => {
  const { access, store } = await openMemories({ memory: { default: { workingMemory: {} } } });
  await access.create({ id: "other", ...ADA });
  const before = await everyRow(store);
  await access.create({ id: "c", ...ADA });
  await access.save(["m", undefined].map((id) => ({ conversationId: "c", message: said("hello", id) })));
  await access.updateWorkingMemory("c", "note", "replace", {});
  await access.delete("c");
  assert.deepEqual(await everyRow(store), before);
  await rejectsAs(access.delete("c"), "not_found");
});

const iso = (time: number) => new Date(time).toISOString();
