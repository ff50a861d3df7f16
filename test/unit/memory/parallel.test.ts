import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { CommitConflict } from "../../../core/lib/errors.ts";
import { createKeyedMutex } from "../../../core/lib/keyed-mutex.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { listed, openMemories, pageOf, rejectsAs, said, textOf, textsOf, watched } from "../../support/memories.ts";

const ADA = { id: "c", userId: "ada", resourceId: "desk" };
const FIRST = { limit: 50, offset: 0, orderBy: "updated_at", orderDirection: "DESC" } as const;

/** Two processes over one store. */
async function two() {
  const store = createMemoryStore();
  const [one, other] = await Promise.all([openMemories({ store }), openMemories({ store })]);
  return [one.access, other.access] as const;
}

test("calls into one conversation that come while one is being saved share one commit", async () => {
  const { store, seen } = watched(createMemoryStore());
  const { access } = await openMemories({ store });
  await access.create(ADA);
  seen.commits.length = 0;
  const texts = Array.from({ length: 50 }, (_, index) => String(index));
  await Promise.all(texts.map((text) => access.save([{ conversationId: "c", message: said(text) }])));
  assert.deepEqual(await textsOf(access, "c"), texts);
  assert.ok(seen.commits.length <= 2, `${seen.commits.length} commits`);
});

test("two processes that save into one conversation at once lose nothing and list it once", async () => {
  const accesses = await two();
  await accesses[0].create(ADA);
  const saves: Promise<number>[] = [];
  for (let round = 0; round < 40; round++) {
    for (const [index, access] of accesses.entries()) {
      saves.push(access.save([{ conversationId: "c", message: said(`${index}:${round}`) }]));
    }
    if (round % 5 === 0) await saves.at(-1);
  }
  await Promise.all(saves);
  const texts = await textsOf(accesses[0], "c");
  assert.equal(new Set(texts).size, 80);
  for (const index of [0, 1]) {
    const own = texts.filter((text) => text.startsWith(`${index}:`)).map((text) => Number(text.slice(2)));
    assert.deepEqual(
      own,
      [...own].sort((a, b) => a - b),
      "each process's messages are in its order",
    );
  }
  assert.deepEqual(
    (await listed(accesses[1].list(FIRST))).conversations.map(({ id }) => id),
    ["c"],
  );
});

test("two processes that save one id at once leave one message", async () => {
  const [one, other] = await two();
  await one.create(ADA);
  await Promise.all(
    [one, other].map((access, index) => access.save([{ conversationId: "c", message: said(String(index), "x") }])),
  );
  assert.equal((await pageOf(one, "c")).messages.length, 1);
});

test("first messages that arrive together make one conversation with all of them", async () => {
  const accesses = await two();
  await Promise.all(Array.from({ length: 20 }, (_, index) => accesses[index % 2]!.append(ADA, [said(String(index))])));
  assert.equal(new Set(await textsOf(accesses[0], "c")).size, 20);
  assert.equal((await listed(accesses[1].list(FIRST))).total, 1);
});

test("a save that another process overtakes is tried again with what the store holds by then", async () => {
  const shared = createMemoryStore();
  const { store, hooks } = watched(shared);
  const [{ access }, other] = [await openMemories({ store }), await openMemories({ store: shared })];
  await access.create(ADA);
  let overtaken = 0;
  hooks.beforeCommit = async () => {
    if (overtaken++ < 3) await other.access.update("c", { metadata: { overtaken } });
  };
  await access.save([{ conversationId: "c", message: said("late") }]);
  assert.equal(overtaken, 4);
  const { conversation, messages } = await pageOf(access, "c");
  assert.deepEqual([conversation.metadata, messages.map(textOf)], [{ overtaken: 3 }, ["late"]]);
});

test("a save that never gets its turn ends as unavailable", { timeout: 60_000 }, async () => {
  const { store, hooks } = watched(createMemoryStore());
  const { access } = await openMemories({ store });
  await access.create(ADA);
  hooks.beforeCommit = async () => {
    throw new CommitConflict(["c/000000001/a"]);
  };
  await rejectsAs(access.save([{ conversationId: "c", message: said("never") }]), "unavailable", /too many/);
});

test("saves that wait while their conversation is deleted answer that it does not exist", async () => {
  const [one, other] = await two();
  await one.create(ADA);
  await other.get("c");
  await one.save([{ conversationId: "c", message: said("before") }]);
  const deleted = one.delete("c");
  const late = [said("after"), said("after", "x")].map((message) => one.save([{ conversationId: "c", message }]));
  await deleted;
  for (const save of late) await rejectsAs(save, "not_found");
  await rejectsAs(other.save([{ conversationId: "c", message: said("x") }]), "not_found");
  await one.create({ ...ADA, userId: "bob" });
  await other.save([{ conversationId: "c", userId: "bob", message: said("new life") }]);
  await rejectsAs(other.save([{ conversationId: "c", userId: "ada", message: said("x") }]), "not_found");
  assert.deepEqual(await textsOf(one, "c"), ["new life"]);
});

test("batches over several conversations and calls into one of them do not wait for each other for ever", async () => {
  const { access } = await openMemories();
  const ids = ["a", "b", "c", "d"];
  for (const id of ids) await access.create({ ...ADA, id });
  const batches = [ids, [...ids].reverse(), ["b", "d"], ["d", "a"], ["c"]];
  await Promise.all(
    Array.from({ length: 100 }, (_, index) =>
      access.save(batches[index % 5]!.map((conversationId) => ({ conversationId, message: said(String(index)) }))),
    ),
  );
  const counts = await Promise.all(ids.map(async (id) => (await textsOf(access, id)).length));
  assert.deepEqual(counts, [60, 60, 60, 80]);
});

test("a store that fails fails the calls of that commit alone, and what follows is saved", async () => {
  const { store, hooks } = watched(createMemoryStore());
  const { access } = await openMemories({ store });
  await access.create(ADA);
  hooks.beforeCommit = async () => {
    delete hooks.beforeCommit;
    throw new Error("disk full");
  };
  const lost = access.save([{ conversationId: "c", message: said("lost") }]);
  const kept = access.save([{ conversationId: "c", message: said("kept") }]);
  await assert.rejects(lost, /disk full/);
  await kept;
  assert.deepEqual(await textsOf(access, "c"), ["kept"]);
});

test("the keyed mutex never runs work on one conversation at the same time, and all work ends", async () => {
  const works = fc.array(fc.uniqueArray(fc.integer({ min: 1, max: 4 }), { minLength: 1 }), { maxLength: 12 });
  await fc.assert(
    fc.asyncProperty(works, async (list) => {
      const mutex = createKeyedMutex();
      const busy = new Set<number>();
      const ends = await Promise.allSettled(
        list.map((conversations, index) =>
          mutex.run(conversations, async () => {
            for (const one of conversations) {
              assert.ok(!busy.has(one));
              busy.add(one);
            }
            await new Promise((resolve) => setImmediate(resolve));
            for (const one of conversations) busy.delete(one);
            if (index % 3 === 0) throw new Error("failed");
          }),
        ),
      );
      assert.deepEqual(
        ends.map((end) => end.status),
        list.map((_, index) => (index % 3 === 0 ? "rejected" : "fulfilled")),
      );
    }),
    { numRuns: 60 },
  );
});
