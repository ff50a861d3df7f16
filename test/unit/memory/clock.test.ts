/** The order of messages does not depend on the clock: it may be set back, between two calls and between two processes. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { MemoryAccess } from "../../../core/memory/scoped.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";
import { checkConsistency, openMemories, pageOf, said, textOf } from "../../support/memories.ts";

const HOUR = 3_600_000;
const NOON = Date.parse("2026-11-20T12:00:00Z");
const ADA = { id: "c", userId: "ada", resourceId: "desk" };

/** A process whose clock a test sets. */
async function processOn(store: Store, time: number) {
  const clock = { time };
  const memories = await openMemories({ store, now: () => clock.time });
  return { ...memories, clock, memory: memories.named("default") };
}

const save = (access: MemoryAccess, text: string, more: object = {}) =>
  access.save([{ conversationId: "c", message: { ...said(text), ...more } }]);

/** Asserts that the messages are those, in that order, and that times and pages agree with it. */
async function assertOrder(access: MemoryAccess, texts: string[]): Promise<void> {
  const { messages } = await pageOf(access, "c");
  assert.deepEqual(messages.map(textOf), texts);
  assert.deepEqual((await access.earlier("c", { limit: 100 })).messages.map(textOf), texts);
  const times = messages.map(({ createdAt }) => Date.parse(createdAt));
  assert.deepEqual(
    times,
    [...times].sort((a, b) => a - b),
  );
  for (const time of new Set(times)) {
    const before = (await pageOf(access, "c", { before: time })).messages.map(textOf);
    const after = (await pageOf(access, "c", { after: time })).messages.map(textOf);
    assert.deepEqual(before, texts.slice(0, times.indexOf(time)));
    assert.deepEqual(after, texts.slice(times.lastIndexOf(time) + 1));
  }
}

const updatedAt = async (access: MemoryAccess) => Date.parse((await access.get("c")).updatedAt);

test("a clock that is set back by an hour leaves messages in their order, and updatedAt where it was", async () => {
  const store = createMemoryStore();
  const first = await processOn(store, NOON);
  await first.access.create(ADA);
  await save(first.access, "one");
  first.clock.time -= HOUR;
  await save(first.access, "two");
  const after = await processOn(store, NOON - HOUR);
  await save(after.access, "three");
  assert.ok((await updatedAt(after.access)) >= NOON);
  await after.access.update("c", { title: "Later" });
  await after.access.deleteMessages("c", ["none"]);
  assert.ok((await updatedAt(after.access)) >= NOON);
  after.clock.time = NOON + HOUR;
  await save(after.access, "four");
  await assertOrder(after.access, ["one", "two", "three", "four"]);
  assert.equal(await updatedAt(after.access), NOON + HOUR);
  await checkConsistency(store);
});

test("a turn's messages come after what was saved before, whenever it began and whatever its process's clock says", async () => {
  const store = createMemoryStore();
  const first = await processOn(store, NOON);
  await first.access.append(ADA, [{ ...said("one"), saidAt: first.memory.now() }]);
  const after = await processOn(store, NOON - HOUR);
  const began = after.memory.now();
  await save(after.access, "two");
  after.clock.time += 1000;
  const answer = { ...said("four"), role: "assistant" as const };
  await after.access.append(ADA, [
    { ...said("three"), saidAt: began },
    { ...answer, saidAt: after.memory.now() },
  ]);
  await assertOrder(after.access, ["one", "two", "three", "four"]);
});

test("a turn's messages keep the times at which they were said where nothing is later", async () => {
  const { access, clock, memory } = await processOn(createMemoryStore(), NOON);
  const began = memory.now();
  clock.time += 5000;
  await access.append(ADA, [
    { ...said("one"), saidAt: began },
    { ...said("two"), saidAt: memory.now() },
  ]);
  const { messages } = await pageOf(access, "c");
  assert.deepEqual(
    messages.map(({ createdAt }) => Date.parse(createdAt)),
    [NOON, NOON + 5000],
  );
});

test("what is said after a message that its client dated ahead of the clock comes after it, in a copy too", async () => {
  const store = createMemoryStore();
  const { access } = await processOn(store, NOON);
  await access.create(ADA);
  await save(access, "one", { createdAt: new Date(NOON + HOUR).toISOString() });
  await save(access, "two");
  await access.append(ADA, [{ ...said("three"), saidAt: NOON }]);
  await save(access, "zero", { createdAt: new Date(NOON - HOUR).toISOString() });
  await assertOrder(access, ["zero", "one", "two", "three"]);
  await access.clone("c", { newConversationId: "copy", includeMessages: true });
  await access.save([{ conversationId: "copy", message: said("four") }]);
  assert.deepEqual((await access.earlier("copy", { limit: 100 })).messages.map(textOf), [
    "zero",
    "one",
    "two",
    "three",
    "four",
  ]);
  assert.equal(await updatedAt(access), NOON);
});

test("a clock before 1970 stores what is said, in order, as of 1970", async () => {
  const { access, clock } = await processOn(createMemoryStore(), -HOUR);
  await access.create(ADA);
  await save(access, "one");
  clock.time = -2 * HOUR;
  await save(access, "two");
  await access.clone("c", { newConversationId: "copy", includeMessages: true });
  assert.equal(await updatedAt(access), 0);
  clock.time = NOON;
  await save(access, "three");
  await assertOrder(access, ["one", "two", "three"]);
});

test("conversations that were stored without the date of their newest message go on in order", async () => {
  const store = createMemoryStore();
  const first = await processOn(store, NOON);
  await first.access.create(ADA);
  await save(first.access, "one");
  const [row] = (await store.scan({ prefix: "c/", limit: 100 })).filter(({ key }) => key.endsWith("/n"));
  await store.commit({ put: [[row!.key, row!.value.replace(/,\d+\]$/, "]")]] });
  const after = await processOn(store, NOON - HOUR);
  await save(after.access, "two");
  await assertOrder(after.access, ["one", "two"]);
});
