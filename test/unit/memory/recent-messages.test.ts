/** The messages that are kept in memory: never others than the store has, and no more than their bound. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { RecentMap } from "../../../core/lib/recent-map.ts";
import { Overlaps } from "../../../core/memory/messages/recent.ts";
import type { MemoryAccess } from "../../../core/memory/scoped.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";
import { openMemories, pageOf, rejectsAs, said, textOf, textsOf, user, watched } from "../../support/memories.ts";

const ADA = { id: "c", userId: "ada", resourceId: "desk" };
const save = (access: MemoryAccess, ...texts: string[]) =>
  access.save(texts.map((text) => ({ conversationId: "c", message: said(text) })));
const earlierTexts = async (access: MemoryAccess, limit = 10) =>
  (await access.earlier("c", { limit })).messages.map(textOf);

/** As a store that several processes use. */
const shared = (store: Store): Store => ({ ...store, kind: "shared" });

test("a page that nobody has changed is read from the store once", async () => {
  const { store, seen } = watched(createMemoryStore());
  const { access } = await openMemories({ store });
  await access.create(ADA);
  await save(access, "one", "two");
  const first = await pageOf(access, "c");
  seen.reads = 0;
  for (let count = 0; count < 3; count++) assert.deepEqual(await pageOf(access, "c"), first);
  assert.equal(seen.reads, 0);
  await save(access, "three");
  assert.deepEqual(await textsOf(access, "c"), ["one", "two", "three"]);
  assert.equal(seen.reads, 1);
});

test("the messages of a prompt go on from the last turn without a read", async () => {
  const { store, seen } = watched(createMemoryStore());
  const { access } = await openMemories({ store });
  const all: string[] = [];
  for (let turn = 0; turn < 20; turn++) {
    assert.deepEqual(await earlierTexts(access), all.slice(-10));
    if (turn === 1) seen.reads = 0;
    const said = [`question ${turn}`, `answer ${turn}`];
    await access.append(
      ADA,
      said.map((text) => ({ role: "user", content: text })),
    );
    all.push(...said);
  }
  assert.ok(seen.reads <= 1, `${seen.reads} reads in 18 turns`);
});

test("a caller that changes what it got of a message with objects changes nobody else's", async () => {
  const { access } = await openMemories();
  await access.create(ADA);
  const part = { type: "tool-add", toolCallId: "1", state: "output-available", input: { a: 1 }, output: { sum: 2 } };
  await access.save([{ conversationId: "c", message: { role: "assistant", parts: [part] } }]);
  for (let count = 0; count < 2; count++) {
    const { messages } = await access.earlier("c", { limit: 10 });
    const [found] = messages[0]!.parts as unknown as [typeof part];
    assert.deepEqual(found, part);
    found.input.a = 7;
    found.output.sum = 7;
  }
});

test("an isolated user is not given the kept page of another user", async () => {
  const { named } = await openMemories({ isolated: true });
  const memory = named("default");
  const [ada, bob] = [memory.for(user("ada")), memory.for(user("bob"))];
  await ada.create({ ...ADA, userId: "ada" });
  await save(ada, "a secret");
  assert.deepEqual(await textsOf(ada, "c"), ["a secret"]);
  assert.deepEqual(await earlierTexts(ada), ["a secret"]);
  await rejectsAs(pageOf(bob, "c"), "not_found");
  assert.deepEqual(await earlierTexts(bob), []);
});

for (const last of ["page", "prompt"])
  test(`the ${last} of a read that a save has overtaken is not kept`, async () => {
    const inner = createMemoryStore();
    let release = () => {};
    let held: Promise<void> | null = null;
    const store: Store = {
      ...inner,
      tail: async (tail) => {
        const found = await inner.tail(tail);
        await held;
        return found;
      },
    };
    const { access } = await openMemories({ store });
    await access.create(ADA);
    await save(access, "old");
    held = new Promise((resolve) => {
      release = resolve;
    });
    const reads = [() => textsOf(access, "c"), () => earlierTexts(access)];
    if (last === "page") reads.reverse();
    const slow = reads.map((read) => read());
    await save(access, "new");
    held = null;
    release();
    await Promise.all(slow);
    // What is kept by the one would hide what is kept by the other.
    assert.deepEqual(await reads[1]!(), ["old", "new"]);
    assert.deepEqual(await reads[0]!(), ["old", "new"]);
  });

test("while a save is on its way, and after one that failed, pages come from the store", async () => {
  const inner = createMemoryStore();
  let tell: ((happened: true) => void) | null = null;
  let answer = () => {};
  const store: Store = {
    ...inner,
    commit: async (commit) => {
      const revision = await inner.commit(commit);
      if (tell === null) return revision;
      tell(true);
      await new Promise<void>((resolve) => {
        answer = resolve;
      });
      throw new Error("the connection was lost after the commit");
    },
  };
  const { access } = await openMemories({ store });
  await access.create(ADA);
  assert.deepEqual(await textsOf(access, "c"), []);
  assert.deepEqual(await earlierTexts(access), []);
  const happened = new Promise<true>((resolve) => {
    tell = resolve;
  });
  const failing = assert.rejects(save(access, "stored"));
  await happened;
  // Nobody has been told so far.
  assert.deepEqual(await textsOf(access, "c"), ["stored"]);
  assert.deepEqual(await earlierTexts(access), ["stored"]);
  answer();
  await failing;
  assert.deepEqual(await textsOf(access, "c"), ["stored"]);
  assert.deepEqual(await earlierTexts(access), ["stored"]);
});

test("a process that saves after another one does not take what it kept before for what is stored", async () => {
  const store = shared(createMemoryStore());
  const [one, other] = await Promise.all([openMemories({ store }), openMemories({ store })]);
  await one.access.create(ADA);
  assert.deepEqual(await earlierTexts(one.access), []);
  await save(other.access, "of the other");
  // Learns the new revision, and reads no messages.
  await one.access.append(ADA, []);
  await save(one.access, "of the one");
  assert.deepEqual(await earlierTexts(one.access), ["of the other", "of the one"]);
});

const operation = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("save" as const), count: fc.integer({ min: 1, max: 3 }) }) },
  fc.record({ kind: fc.constant("named" as const), id: fc.constantFrom("m1", "m2") }),
  fc.record({ kind: fc.constant("dated" as const), time: fc.integer({ min: 0, max: 60 }) }),
  fc.record({ kind: fc.constant("remove" as const), id: fc.constantFrom("m1", "m2") }),
  fc.record({ kind: fc.constant("update" as const) }),
  fc.record({ kind: fc.constant("again" as const) }),
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("look" as const) }) },
);

for (const processes of [1, 2]) {
  test(`whatever ${processes === 1 ? "one process does" : "two processes do"}, pages and prompts have what the store has`, async () => {
    const step = fc.tuple(operation, fc.nat({ max: processes - 1 }), fc.integer({ min: 1, max: 6 }), fc.boolean());
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 20 }), async (steps) => {
        const inner = createMemoryStore();
        const store = processes === 1 ? inner : shared(inner);
        let now = 0;
        const open = () => openMemories({ store, now: () => (now += 3) });
        const opened = await Promise.all(Array.from({ length: processes }, open));
        await opened[0]!.access.create(ADA);
        for (const [index, [one, at, limit, looks]] of steps.entries()) {
          const { access } = opened[at]!;
          const texts = Array.from({ length: one.kind === "save" ? one.count : 1 }, (_, count) => `${index}.${count}`);
          if (one.kind === "save") await save(access, ...texts);
          else if (one.kind === "named") await access.save([{ conversationId: "c", message: said(texts[0]!, one.id) }]);
          else if (one.kind === "dated") {
            const createdAt = new Date(one.time).toISOString();
            await access.save([{ conversationId: "c", message: { ...said(texts[0]!), createdAt } }]);
          } else if (one.kind === "remove") await access.deleteMessages("c", [one.id]);
          // Learns the revision that another process has written, without a conflict.
          else if (one.kind === "look") await access.append(ADA, []);
          else if (one.kind === "update") await access.update("c", { title: texts[0]! });
          else {
            await access.delete("c");
            await access.create(ADA);
          }
          // A process that has just started has nothing in memory.
          const { access: fresh } = await open();
          for (const { access: asked } of looks ? opened : []) {
            assert.deepEqual(await pageOf(asked, "c", { limit }), await pageOf(fresh, "c", { limit }));
            assert.deepEqual(
              (await asked.earlier("c", { limit })).messages,
              (await fresh.earlier("c", { limit })).messages,
            );
          }
        }
      }),
      { numRuns: 100 },
    );
  });
}

test("pages beyond a bound in bytes are read again, however many conversations there are", async () => {
  const { store, seen } = watched(createMemoryStore());
  const { access } = await openMemories({ store });
  const ids = Array.from({ length: 200 }, (_, index) => `c${index}`);
  for (const id of ids) {
    await access.create({ ...ADA, id });
    await access.save([{ conversationId: id, message: said("x".repeat(200_000)) }]);
    await pageOf(access, id);
  }
  seen.reads = 0;
  for (const id of ids.toReversed()) await pageOf(access, id);
  // 16 MiB hold 80 of 200 KB.
  assert.ok(seen.reads >= 110, `only ${seen.reads} of 200 pages were read`);
  assert.ok(seen.reads < 200, "nothing was kept");
});

test("a bounded map counts the weight of what it holds, also of what is replaced and deleted", () => {
  const recent = new RecentMap<number, string>(10, (weight) => weight);
  for (let count = 0; count < 100; count++) recent.set("same", 4);
  recent.set("other", 5);
  assert.equal(recent.get("same"), 4);
  recent.delete("other");
  recent.set("third", 5);
  assert.deepEqual([recent.get("same"), recent.get("other"), recent.get("third")], [4, undefined, 5]);
  for (const key of ["a", "b", "c"]) recent.set(key, 6);
  assert.deepEqual(
    ["same", "a", "b", "c"].map((key) => recent.get(key)),
    [undefined, undefined, 6, 6],
  );
});

test("a read is alone when no write of its key begins, ends or goes on meanwhile", async () => {
  const overlaps = new Overlaps();
  const read = async (during: () => void) => (await overlaps.read("key", async () => during())).alone;
  assert.equal(await read(() => {}), true);
  assert.equal(await read(() => overlaps.beginWrite("key")), false);
  assert.equal(await read(() => {}), false);
  assert.equal(await read(() => overlaps.endWrite("key")), false);
  assert.equal(await read(() => overlaps.beginWrite("another")), true);
});
