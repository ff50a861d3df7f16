import assert from "node:assert/strict";
import { test } from "node:test";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import {
  checkConsistency,
  everyRow,
  openMemories,
  pageOf,
  rejectsAs,
  said,
  textsOf,
  watched,
} from "../../support/memories.ts";

const ADA = { id: "c", userId: "ada", resourceId: "desk", title: "Order", metadata: { a: 1 } };

async function opened(store = createMemoryStore(), messages = 3) {
  const memories = await openMemories({ store, memory: { default: { workingMemory: {} } } });
  await memories.access.create(ADA);
  const texts = Array.from({ length: messages }, (_, index) => String(index));
  await memories.access.save(texts.map((text) => ({ conversationId: "c", message: said(text, `m${text}`) })));
  await memories.access.updateWorkingMemory("c", "# Note", "replace", {});
  return { ...memories, texts };
}

test("a copy has title, metadata, resource, working memory and messages of the source, and new ids", async () => {
  const { access, texts } = await opened();
  const { conversation, messageCount } = await access.clone("c", { includeMessages: true });
  const { id, createdAt, updatedAt, ...rest } = conversation;
  assert.deepEqual(rest, { userId: "ada", resourceId: "desk", title: "Order", metadata: { a: 1 } });
  assert.equal(createdAt, updatedAt);
  assert.deepEqual([messageCount, await textsOf(access, id)], [3, texts]);
  assert.equal((await access.workingMemory(id, {})).content, "# Note");
  const [source, copy] = await Promise.all([pageOf(access, "c"), pageOf(access, id)]);
  assert.deepEqual(
    copy.messages.map((one) => one.createdAt),
    source.messages.map((one) => one.createdAt),
  );
  assert.equal(new Set([...source.messages, ...copy.messages].map((one) => one.id)).size, 6);
});

test("source and copy live apart afterwards, and the copy's messages answer to their ids", async () => {
  const { access, texts } = await opened();
  await access.clone("c", { newConversationId: "d", includeMessages: true });
  const [first, second] = (await pageOf(access, "d")).messages;
  await access.save([{ conversationId: "d", message: said("changed", first!.id) }]);
  assert.equal(await access.deleteMessages("d", [second!.id]), 1);
  await access.updateWorkingMemory("d", "other", "replace", {});
  assert.deepEqual(await textsOf(access, "c"), texts);
  assert.deepEqual(await textsOf(access, "d"), ["changed", "2"]);
  await access.delete("c");
  assert.deepEqual(await textsOf(access, "d"), ["changed", "2"]);
  assert.equal((await access.workingMemory("d", {})).content, "other");
});

test("what is named goes before the source's, and messages may be left out", async () => {
  const { access } = await opened();
  const overrides = { title: "", metadata: { b: 2 }, resourceId: "shop" };
  const cloned = await access.clone("c", { newConversationId: "d", includeMessages: false, ...overrides });
  assert.equal(cloned.messageCount, 0);
  const { id, title, metadata, resourceId } = cloned.conversation;
  assert.deepEqual({ id, title, metadata, resourceId }, { id: "d", ...overrides });
  assert.deepEqual(await textsOf(access, "d"), []);
});

test("an id that is taken is a conflict, an unknown source is not found, and neither writes anything", async () => {
  const { access, store } = await opened();
  const before = await everyRow(store);
  await rejectsAs(access.clone("c", { newConversationId: "c", includeMessages: true }), "conflict");
  await rejectsAs(access.clone("none", { newConversationId: "d", includeMessages: true }), "not_found");
  assert.deepEqual(await everyRow(store), before);
});

test("a large copy is not there before it is whole", async () => {
  const { store, seen, hooks } = watched(createMemoryStore());
  const { access, texts } = await opened(store, 1200);
  seen.commits.length = 0;
  let looks = 0;
  hooks.beforeCommit = async () => {
    looks++;
    await rejectsAs(access.get("d"), "not_found");
  };
  const { messageCount } = await access.clone("c", { newConversationId: "d", includeMessages: true });
  assert.deepEqual([messageCount, looks, seen.commits.length], [1200, 3, 3]);
  assert.deepEqual(await textsOf(access, "d", { limit: 1000 }), texts.slice(200));
});

test("a large copy that fails half way leaves nothing behind", async () => {
  const { store, seen, hooks } = watched(createMemoryStore());
  const { access } = await opened(store, 1200);
  const before = await everyRow(store);
  seen.commits.length = 0;
  hooks.beforeCommit = async () => {
    if (seen.commits.length === 2) {
      delete hooks.beforeCommit;
      throw new Error("disk full");
    }
  };
  await assert.rejects(access.clone("c", { newConversationId: "d", includeMessages: true }), /disk full/);
  assert.deepEqual(await everyRow(store), before);
  assert.equal((await access.clone("c", { newConversationId: "d", includeMessages: true })).messageCount, 1200);
});

test("when another process saves into the source meanwhile, the copy has that message too", async () => {
  const shared = createMemoryStore();
  const { store, hooks } = watched(shared);
  const { access } = await opened(store);
  const other = await openMemories({ store: shared });
  hooks.beforeCommit = async () => {
    delete hooks.beforeCommit;
    await other.access.save([{ conversationId: "c", message: said("meanwhile") }]);
  };
  await access.clone("c", { newConversationId: "d", includeMessages: true });
  assert.deepEqual(await textsOf(access, "d"), ["0", "1", "2", "meanwhile"]);
});

test("what a process that ended in the middle of a large copy left is taken away by the next one", async () => {
  const { store, hooks } = watched(createMemoryStore());
  const { access } = await opened(store, 1_200);
  const before = await everyRow(store);
  let commits = 0;
  hooks.beforeCommit = async () => {
    if (++commits > 2) throw new Error("the process has ended");
  };
  await assert.rejects(access.clone("c", { newConversationId: "d", includeMessages: true }));
  assert.ok((await everyRow(store)).size > before.size, "something was left");
  delete hooks.beforeCommit;
  const after = await openMemories({ store, memory: { default: { workingMemory: {} } } });
  await checkConsistency(store);
  await after.access.clone("c", { newConversationId: "d", includeMessages: true });
  await checkConsistency(store);
  assert.equal((await textsOf(after.access, "d", { limit: 1_000 })).length, 1_000);
});
