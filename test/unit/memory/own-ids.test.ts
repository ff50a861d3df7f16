/** Ids of conversations that belong to users: what it costs to look for them, and what their rows are. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { EVERYTHING } from "../../../core/identity/principal.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { checkConsistency, openMemories, rejectsAs, said, textsOf, user, watched } from "../../support/memories.ts";

const desk = (id: string, userId: string) => ({ id, userId, resourceId: "desk" });

/** What single operations ask the store for, in a process that knows nothing and in one that knows the conversation. */
async function costs(isolated: boolean) {
  const base = createMemoryStore();
  const { store, seen } = watched(base);
  const count = async (work: () => Promise<unknown>) => {
    seen.reads = 0;
    seen.commits.length = 0;
    await work();
    const rows = seen.commits.flatMap(({ put = [], delete: gone = [], add = [] }) => [...put, ...gone, ...add]);
    return [seen.reads, seen.commits.length, rows.length];
  };
  let time = 1_700_000_000_000;
  const now = () => ++time;
  const open = async () => (await openMemories({ store, isolated, now })).named("default").for(user("ada"));
  const [first, second] = [await open(), await open()];
  return {
    "the first turn of a conversation": await count(async () => {
      await first.earlier("c", { limit: 10 }, "ada");
      await first.append(desk("c", "ada"), [said("a")]);
    }),
    "the next turn": await count(async () => {
      await first.earlier("c", { limit: 10 }, "ada");
      await first.append(desk("c", "ada"), [said("b")]);
    }),
    "a save where it is known": await count(() => first.save([{ conversationId: "c", message: said("c") }])),
    "a save where it is not": await count(() => second.save([{ conversationId: "c", message: said("d") }])),
  };
}

describe("memory of users with ids of their own", () => {
  test("a turn and a save ask the store as often, and write as many rows, as where an id is one for everybody", async () => {
    const [isolated, common] = [await costs(true), await costs(false)];
    assert.deepEqual(isolated, common);
    assert.deepEqual(isolated["the next turn"].slice(0, 2), [1, 1]);
    assert.deepEqual(isolated["a save where it is known"].slice(0, 2), [0, 1]);
  });

  test("rows and indexes of two users' conversations of one id tell one story, also after one is deleted", async () => {
    const { store, named } = await openMemories({ isolated: true });
    const [ada, bob] = ["ada", "bob"].map((name) => named("default").for(user(name)));
    for (const [access, name] of [[ada!, "ada"] as const, [bob!, "bob"] as const]) {
      await access.create(desk("c", name));
      await access.save([{ conversationId: "c", message: said(name, "m") }]);
    }
    await checkConsistency(store);
    await ada!.clone("c", { newConversationId: "d", includeMessages: true });
    await ada!.delete("c");
    await checkConsistency(store);
    assert.deepEqual([await textsOf(bob!, "c"), await textsOf(ada!, "d")], [["bob"], ["ada"]]);
  });

  test("ids and users of any characters, and long ones, are told apart", async () => {
    const { store, named } = await openMemories({ isolated: true });
    const everything = named("default").for(EVERYTHING);
    const names = [
      "a",
      "a/b",
      "b/a",
      "ab",
      "a\0b",
      "1\0a",
      "a\x01",
      "%",
      "ä",
      "🙂",
      "x".repeat(256),
      `${"x".repeat(255)}y`,
    ];
    for (const id of names) {
      for (const userId of names) await everything.append(desk(id, userId), [said(JSON.stringify([id, userId]))]);
    }
    for (const id of names) {
      for (const userId of names) {
        const own = named("default").for(user(userId));
        assert.deepEqual(await textsOf(own, id), [JSON.stringify([id, userId])]);
        await rejectsAs(own.create(desk(id, userId)), "conflict");
      }
      await rejectsAs(everything.get(id), "invalid_input", /say whose with userId/);
    }
    await checkConsistency(store);
  });

  test("save for two users' conversations of one id in one call puts each message where its user says", async () => {
    const { named } = await openMemories({ isolated: true });
    const everything = named("default").for(EVERYTHING);
    for (const name of ["ada", "bob"]) await everything.create(desk("c", name));
    const entry = (userId: string) => ({ conversationId: "c", userId, message: said(`for ${userId}`) });
    await everything.save([entry("ada"), entry("bob"), entry("ada")]);
    assert.deepEqual(await textsOf(everything, "c", { userId: "ada" }), ["for ada", "for ada"]);
    assert.deepEqual(await textsOf(everything, "c", { userId: "bob" }), ["for bob"]);
    await rejectsAs(everything.save([{ conversationId: "c", message: said("whose?") }]), "invalid_input");
  });

  test("a conversation that another process deleted and made again is found under its new number", async () => {
    const store = createMemoryStore();
    const open = async () => (await openMemories({ store, isolated: true })).named("default").for(user("ada"));
    const [one, other] = [await open(), await open()];
    await one.append(desk("c", "ada"), [said("old")]);
    await other.delete("c");
    await other.append(desk("c", "ada"), [said("new")]);
    assert.deepEqual(await textsOf(one, "c"), ["new"]);
    await one.save([{ conversationId: "c", message: said("newer") }]);
    assert.deepEqual(await textsOf(other, "c"), ["new", "newer"]);
  });
});
