import assert from "node:assert/strict";
import { test } from "node:test";
import type { MemoryAccess } from "../../../core/memory/scoped.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { everyRow, listed, openMemories, pageOf, rejectsAs, said, textsOf, user } from "../../support/memories.ts";

const FIRST = { limit: 50, offset: 0, orderBy: "updated_at", orderDirection: "DESC" } as const;
const ADA = { id: "c", userId: "ada", resourceId: "desk" };

const SIMILAR = {
  text: "x",
  limit: 5,
  threshold: 0,
  scope: "user",
  knownMessageIds: new Set<string>(),
  knowsWholeConversation: false,
} as const;

/** Every method that names a conversation. */
const METHODS: {
  [name in Exclude<keyof MemoryAccess, "list" | "create" | "requireRoom">]: (access: MemoryAccess) => Promise<unknown>;
} = {
  get: (access) => access.get("c"),
  update: (access) => access.update("c", { title: "stolen" }),
  delete: (access) => access.delete("c"),
  clone: (access) => access.clone("c", { newConversationId: "mine", includeMessages: true }),
  messages: (access) => access.messages("c", { limit: 10 }),
  save: (access) => access.save([{ conversationId: "c", message: said("x") }]),
  deleteMessages: (access) => access.deleteMessages("c", ["m"]),
  workingMemory: (access) => access.workingMemory("c", {}),
  updateWorkingMemory: (access) => access.updateWorkingMemory("c", "x", "replace", {}),
  search: (access) => access.search({ text: "x", conversationId: "c", limit: 5, threshold: 0 }),
  similar: (access) => access.similar({ id: "c", userId: "bob" }, SIMILAR),
  unsummarized: (access) => access.unsummarized({ id: "c", userId: "bob" }, "m", 10),
  summarize: (access) => access.summarize({ id: "c", userId: "bob" }, "x", "0"),
  earlier: (access) => access.earlier("c", { limit: 10 }),
  workingMemoryIfAny: (access) => access.workingMemoryIfAny({ id: "c", userId: "bob" }),
  append: (access) => access.append({ ...ADA, userId: "bob" }, [said("x")]),
};

/** Those that name their user. */
const NAMING = new Set(["similar", "workingMemoryIfAny", "append", "unsummarized", "summarize"]);

async function opened() {
  const semantic = new Map([
    [
      "default",
      {
        embedding: null as never,
        saved() {},
        deleted() {},
        conversationDeleted() {},
        committed() {},
        search: async () => [],
        rebuild: async () => ({ indexed: 0, refused: 0 }),
      },
    ],
  ]);
  const memories = await openMemories({ memory: { default: { workingMemory: {} } }, semantic });
  const memory = memories.named("default");
  await memory.for(user("ada")).create(ADA);
  await memory.for(user("ada")).save([{ conversationId: "c", message: said("secret", "m") }]);
  return { ...memories, memory };
}

for (const [method, call] of Object.entries(METHODS)) {
  test(`${method}: a conversation of another user does not exist, and stays as it is`, async () => {
    const { memory, store } = await opened();
    const before = await everyRow(store);
    await rejectsAs(call(memory.for(user("bob"))), "not_found", /"c" does not exist/);
    if (!NAMING.has(method)) {
      await rejectsAs(call(memory.for(user(null))), "not_found", /"c" does not exist/);
    }
    assert.deepEqual(await everyRow(store), before);
  });
}

test("the owner of a conversation may call every method of memory on it", async () => {
  for (const [method, call] of Object.entries(METHODS)) {
    if (NAMING.has(method)) continue;
    const { memory } = await opened();
    await call(memory.for(user("ada")));
  }
});

test("an isolated caller lists its own conversations only, and cannot name another user", async () => {
  const { memory } = await opened();
  const bob = memory.for(user("bob"));
  await bob.create({ id: "b", userId: "bob", resourceId: "desk" });
  assert.deepEqual(
    (await listed(bob.list(FIRST))).conversations.map(({ id }) => id),
    ["b"],
  );
  assert.equal((await listed(bob.list({ ...FIRST, resourceId: "desk" }))).total, 1);
  const foreign: Promise<unknown>[] = [
    listed(bob.list({ ...FIRST, userId: "ada" })),
    bob.create({ id: "x", userId: "ada", resourceId: "desk" }),
    bob.save([{ conversationId: "b", userId: "ada", message: said("x") }]),
    bob.messages("b", { limit: 1, userId: "ada" }),
    bob.deleteMessages("b", ["m"], "ada"),
    bob.append(ADA, [said("x")]),
    bob.search({ text: "x", userId: "ada", limit: 5, threshold: 0 }),
    bob.earlier("b", { limit: 5 }, "ada"),
  ];
  for (const call of foreign) await rejectsAs(call, "invalid_input", /userId must be the user of the token/);
});

test("a caller without a user sees what belongs to nobody, and nothing else", async () => {
  const { memory } = await opened();
  const nobody = memory.for(user(null));
  await nobody.append({ id: "public", userId: "", resourceId: "desk" }, [said("hello")]);
  assert.deepEqual(
    (await listed(nobody.list(FIRST))).conversations.map(({ id }) => id),
    ["public"],
  );
  assert.deepEqual(await textsOf(nobody, "public"), ["hello"]);
  await rejectsAs(memory.for(user("bob")).get("public"), "not_found");
});

test("without isolation a named user must be the conversation's, or it does not exist", async () => {
  const { access } = await opened();
  const foreign: Promise<unknown>[] = [
    access.save([{ conversationId: "c", userId: "bob", message: said("x") }]),
    access.messages("c", { limit: 1, userId: "bob" }),
    access.deleteMessages("c", ["m"], "bob"),
    access.append({ ...ADA, userId: "bob" }, [said("x")]),
    access.append({ ...ADA, userId: "bob" }, []),
    access.earlier("c", { limit: 5 }, "bob"),
    access.search({ text: "x", conversationId: "c", userId: "bob", limit: 5, threshold: 0 }),
    access.workingMemoryIfAny({ id: "c", userId: "bob" }),
  ];
  for (const call of foreign) await rejectsAs(call, "not_found");
  await access.save([{ conversationId: "c", userId: "ada", message: said("fine") }]);
  assert.equal((await pageOf(access, "c", { userId: "ada" })).messages.length, 2);
  await rejectsAs(access.create({ id: "e", userId: "", resourceId: "desk" }), "invalid_input", /userId/);
});

test("an id that another process freed and its new owner took is the new owner's here too", async () => {
  const store = createMemoryStore();
  const [here, there] = await Promise.all([0, 1].map(async () => (await openMemories({ store })).named("default")));
  await here!.for(user("ada")).append(ADA, [said("old")]);
  await there!.for(user("ada")).delete("c");
  await there!.for(user("bob")).append({ ...ADA, userId: "bob" }, [said("new")]);
  await here!.for(user("bob")).append({ ...ADA, userId: "bob" }, [said("newer")]);
  assert.deepEqual(await textsOf(here!.for(user("bob")), "c"), ["new", "newer"]);
  await rejectsAs(here!.for(user("ada")).get("c"), "not_found");
});
