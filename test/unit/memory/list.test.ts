import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { ConversationListQuery } from "../../../core/memory/memory.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { listed, openMemories, said, watched } from "../../support/memories.ts";

const FIRST: ConversationListQuery = { limit: 50, offset: 0, orderBy: "updated_at", orderDirection: "DESC" };

async function filled() {
  let now = 0;
  const memories = await openMemories({ now: () => ++now });
  const { access } = memories;
  for (const [index, id] of ["a", "b", "c", "d", "e", "f"].entries()) {
    const [userId, resourceId, title] = [
      index % 2 === 0 ? "ada" : "bob",
      index < 4 ? "desk" : "shop",
      `${9 - index} Title`,
    ];
    await access.create({ id, userId, resourceId, title });
  }
  await access.save([{ conversationId: "b", message: said("b is the newest now") }]);
  const ids = async (query: Partial<ConversationListQuery>) => {
    const page = await listed(access.list({ ...FIRST, ...query }));
    return [page.conversations.map(({ id }) => id).join(""), page.total];
  };
  return { ...memories, ids };
}

test("conversations are listed by their last change, of a user, a resource, both, or all, with the total", async () => {
  const { ids } = await filled();
  assert.deepEqual(await ids({}), ["bfedca", 6]);
  assert.deepEqual(await ids({ userId: "ada" }), ["eca", 3]);
  assert.deepEqual(await ids({ userId: "bob" }), ["bfd", 3]);
  assert.deepEqual(await ids({ resourceId: "desk" }), ["bdca", 4]);
  assert.deepEqual(await ids({ userId: "bob", resourceId: "desk" }), ["bd", 2]);
  assert.deepEqual(await ids({ userId: "nobody" }), ["", 0]);
  assert.deepEqual(await ids({ resourceId: "des" }), ["", 0]);
});

test("limit and offset choose the page, and the total stays that of all", async () => {
  const { access, ids } = await filled();
  assert.deepEqual(await ids({ limit: 2, offset: 1 }), ["fe", 6]);
  assert.deepEqual(await ids({ limit: 2, offset: 5 }), ["a", 6]);
  assert.deepEqual(await ids({ limit: 2, offset: 600_000 }), ["", 6]);
  assert.deepEqual(await ids({ limit: 2, offset: 600_000, userId: "ada" }), ["", 3]);
  assert.deepEqual(await ids({ limit: 1, offset: 1, userId: "bob", resourceId: "desk" }), ["d", 2]);
  const page = await listed(access.list({ ...FIRST, limit: 3, offset: 2 }));
  assert.deepEqual([page.limit, page.offset], [3, 2]);
  assert.deepEqual(page.conversations[0], await access.get("e"));
});

test("other orders: creation, title, and each of them the other way round", async () => {
  const { ids } = await filled();
  assert.deepEqual(await ids({ orderDirection: "ASC" }), ["acdefb", 6]);
  assert.deepEqual(await ids({ orderBy: "created_at" }), ["fedcba", 6]);
  assert.deepEqual(await ids({ orderBy: "created_at", orderDirection: "ASC", offset: 4 }), ["ef", 6]);
  assert.deepEqual(await ids({ orderBy: "title", orderDirection: "ASC", resourceId: "desk" }), ["dcba", 4]);
  assert.deepEqual(await ids({ orderBy: "title", limit: 1, userId: "ada", resourceId: "desk" }), ["a", 2]);
});

test("totals follow creation, cloning and deletion", async () => {
  const { access, ids } = await filled();
  await access.clone("a", { newConversationId: "g", includeMessages: true, resourceId: "shop" });
  await access.delete("b");
  await access.delete("d");
  assert.deepEqual(await ids({}), ["gfeca", 5]);
  assert.deepEqual(await ids({ userId: "bob" }), ["f", 1]);
  assert.deepEqual(await ids({ resourceId: "shop" }), ["gfe", 3]);
  await access.delete("f");
  assert.deepEqual(await ids({ userId: "bob" }), ["", 0]);
});

test("a page of one user reads the same number of rows whatever else the store holds", async () => {
  const { store, seen } = watched(createMemoryStore());
  const { access } = await openMemories({ store });
  for (let index = 0; index < 30; index++) await access.create({ userId: "ada", resourceId: "desk" });
  const cost = async () => {
    seen.reads = 0;
    await listed(access.list({ ...FIRST, limit: 10, offset: 5, userId: "ada" }));
    return seen.reads;
  };
  const before = await cost();
  await Promise.all(
    Array.from({ length: 3000 }, (_, index) => access.create({ userId: `u${index}`, resourceId: "desk" })),
  );
  assert.equal(await cost(), before);
  assert.equal(before, 3);
});

test("a list is what sorting all conversations gives, however many users and resources there are", async () => {
  const conversation = fc.record({
    user: fc.constantFrom("u1", "u2", "ü/"),
    resource: fc.constantFrom("r1", "r2", "r/3", "r4", "r5"),
    time: fc.integer({ min: 1, max: 30 }),
    title: fc.constantFrom("x", "y", "z"),
  });
  const query = fc.record({
    limit: fc.integer({ min: 1, max: 20 }),
    offset: fc.integer({ min: 0, max: 20 }),
    orderBy: fc.constantFrom("updated_at", "created_at", "title"),
    orderDirection: fc.constantFrom("ASC", "DESC"),
    userId: fc.option(fc.constantFrom("u1", "ü/", "none"), { nil: undefined }),
    resourceId: fc.option(fc.constantFrom("r1", "r/3", "none"), { nil: undefined }),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(conversation, { maxLength: 40 }),
      query,
      async (list, { userId, resourceId, ...rest }) => {
        let now = 0;
        const { access } = await openMemories({ now: () => now });
        list.sort((a, b) => a.time - b.time);
        for (const [index, { user, resource, time, title }] of list.entries()) {
          now = time;
          await access.create({ id: String(index), userId: user, resourceId: resource, title });
        }
        const by = ({ time, title }: (typeof list)[number]) =>
          rest.orderBy === "title" ? title : String(time).padStart(3);
        const matching = [...list.entries()]
          .filter(([, one]) => one.user === (userId ?? one.user) && one.resource === (resourceId ?? one.resource))
          .sort(([a, one], [b, other]) => (by(one) < by(other) ? -1 : by(one) > by(other) ? 1 : a - b))
          .map(([index]) => String(index));
        if (rest.orderDirection === "DESC") matching.reverse();
        const filter = { ...(userId !== undefined && { userId }), ...(resourceId !== undefined && { resourceId }) };
        const page = await listed(access.list({ ...(rest as Omit<ConversationListQuery, "userId">), ...filter }));
        assert.deepEqual(
          [page.conversations.map(({ id }) => id), page.total],
          [matching.slice(rest.offset, rest.offset + rest.limit), matching.length],
        );
      },
    ),
    { numRuns: 200 },
  );
});
