import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { Manifest } from "../../../core/manifest/manifest.ts";
import { openSemantics } from "../../../core/memory/semantic/open.ts";
import { createHost } from "../../../core/registry/host.ts";
import { Registry } from "../../../core/registry/registry.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { openMemories, pageOf, rejectsAs, said, user } from "../../support/memories.ts";
import { silent } from "../../support/providers.ts";

const SEMANTIC = { embedding: "local/hash", vectors: "exact", limit: 5, threshold: 0.7 };
const QUERY = { limit: 10, threshold: 0.5 };

/** Two users with a conversation each, indexed by words. */
async function opened(context: TestContext) {
  const store = createMemoryStore();
  const host = createHost({ logger: silent, env: {} });
  context.after(() => host.close());
  const manifest = { memory: { default: { contextLimit: 10, semantic: SEMANTIC } } } as unknown as Manifest;
  const models = { embedding: () => assert.fail("local/hash needs no model") };
  const { semantics } = await openSemantics(manifest, { store, registry: new Registry([]), host, models });
  const memories = await openMemories({ store, memory: { default: { semantic: SEMANTIC } }, semantic: semantics });
  for (const userId of ["ada", "bob"]) {
    await memories.access.create({ id: `of-${userId}`, userId, resourceId: "desk" });
    const texts = ["the ferry leaves at noon", "bread and butter"];
    await memories.access.save(
      texts.map((text, index) => ({ conversationId: `of-${userId}`, message: said(text, `m${index}`) })),
    );
  }
  return { ...memories, memory: memories.named("default") };
}

test("search gives the messages that are meant, with conversation and score", async (context) => {
  const { access } = await opened(context);
  const found = await access.search({ ...QUERY, text: "when leaves the ferry", userId: "ada", threshold: 0.2 });
  assert.deepEqual([found.count, found.query, found.results.length], [1, "when leaves the ferry", 1]);
  const [result] = found.results;
  const [message] = (await pageOf(access, "of-ada")).messages;
  assert.deepEqual({ ...result, score: 0 }, { id: "m0", score: 0, message, conversationId: "of-ada" });
  assert.ok(result!.score > 0.2 && result!.score <= 1);
});

test("with isolation only the caller's messages are found, without it those of whom it names, or of everybody", async (context) => {
  const { access, memory } = await opened(context);
  const conversations = async (who: typeof access, query: object = {}) =>
    (await who.search({ ...QUERY, text: "the ferry leaves at noon", ...query })).results
      .map((one) => one.conversationId)
      .sort();
  assert.deepEqual(await conversations(memory.for(user("bob"))), ["of-bob"]);
  assert.deepEqual(await conversations(memory.for(user("eve"))), []);
  assert.deepEqual(await conversations(access), ["of-ada", "of-bob"]);
  assert.deepEqual(await conversations(access, { userId: "ada" }), ["of-ada"]);
  assert.deepEqual(await conversations(access, { conversationId: "of-bob" }), ["of-bob"]);
  await rejectsAs(conversations(memory.for(user("bob")), { conversationId: "of-ada" }), "not_found");
  await rejectsAs(conversations(access, { conversationId: "of-ada", userId: "bob" }), "not_found");
});

test("what is replaced, deleted, or in a deleted conversation is not found any more, and a copy is found too", async (context) => {
  const { access } = await opened(context);
  const ids = async (text: string) =>
    (await access.search({ ...QUERY, text })).results.map((one) => `${one.conversationId}/${one.id}`).sort();
  await access.save([{ conversationId: "of-ada", message: said("the tram comes at nine", "m0") }]);
  assert.deepEqual(await ids("the ferry leaves at noon"), ["of-bob/m0"]);
  assert.deepEqual(await ids("the tram comes at nine"), ["of-ada/m0"]);
  await access.deleteMessages("of-ada", ["m0"]);
  assert.deepEqual(await ids("the tram comes at nine"), []);
  await access.clone("of-bob", { newConversationId: "copy", includeMessages: true });
  await access.delete("of-bob");
  const [copied] = (await pageOf(access, "copy")).messages;
  assert.deepEqual(await ids("the ferry leaves at noon"), [`copy/${copied!.id}`]);
});

test("a memory without embedding and vectors cannot be searched, and says why", async () => {
  const { access } = await openMemories();
  await rejectsAs(
    access.search({ ...QUERY, text: "x" }),
    "invalid_input",
    /no embedding and vectors \(memory\.default\.semantic\)/,
  );
});
