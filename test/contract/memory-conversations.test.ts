/** Contract, "Memory": conversations, on every store. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { assertShape, ISO, type MemoryService, said, serveMemory } from "../support/memory.ts";
import { STORES } from "../support/memory-stores.ts";
import type { Loose } from "../support/served-upstream.ts";

/** A clock tick apart, so that an order by time is one. */
async function create(service: MemoryService, ...bodies: object[]): Promise<string[]> {
  const ids: string[] = [];
  for (const body of bodies) {
    const { conversation } = await service.data("POST", "/conversations", { userId: "ada", ...body });
    ids.push(conversation.id);
    await sleep(3);
  }
  return ids;
}

const idsOf = ({ conversations }: Loose): string[] => conversations.map(({ id }: Loose) => id);

for (const store of STORES) {
  const served = async (t: TestContext, rest: object = {}) => serveMemory(t, await store.url(t), rest);

  describe(`/api/memory/conversations on ${store.name}`, () => {
    test("POST /api/memory/conversations creates a conversation with all its fields: 201", async (t) => {
      const service = await served(t);
      const metadata = { channel: "web", nested: { deep: [1, null, "é"] } };
      const body = { userId: "ada", resourceId: "desk", title: "Order", metadata, conversationId: "c-1", stray: 1 };
      const { status, data } = await service.call("POST", "/conversations", body);
      assert.equal(status, 201);
      assertShape("ConversationReply", data);
      const { createdAt, updatedAt, ...rest } = data.conversation;
      assert.deepEqual(rest, { id: "c-1", userId: "ada", resourceId: "desk", title: "Order", metadata });
      assert.match(createdAt, ISO);
      assert.equal(updatedAt, createdAt);
      assert.deepEqual(await service.data("GET", "/conversations/c-1"), data);
    });

    test("POST /api/memory/conversations makes an id, an empty title and empty metadata where they are absent", async (t) => {
      const service = await served(t);
      const [one, two] = await create(service, { resourceId: "r" }, { resourceId: "r" });
      assert.match(one!, /^[\w-]{8,}$/);
      assert.notEqual(one, two);
      const { conversation } = await service.data("GET", `/conversations/${one}`);
      assert.deepEqual([conversation.title, conversation.metadata], ["", {}]);
    });

    test("POST /api/memory/conversations: resourceId defaults to the agent id, given in the body or the query", async (t) => {
      const service = await served(t);
      const resource = async (path: string, body: object) =>
        (await service.data("POST", path, { userId: "ada", ...body })).conversation.resourceId;
      assert.equal(await resource("/conversations", { agentId: "shop" }), "shop");
      assert.equal(await resource("/conversations?agentId=shop", {}), "shop");
      assert.equal(await resource("/conversations?agentId=echo", { agentId: "shop" }), "shop");
      assert.equal(await resource("/conversations", { agentId: "shop", resourceId: "other" }), "other");
    });

    test("POST /api/memory/conversations with an id that is taken: 409, and nothing changes", async (t) => {
      const service = await served(t);
      await create(service, { conversationId: "c", title: "First" });
      const { status, error, code } = await service.call("POST", "/conversations", {
        userId: "bob",
        conversationId: "c",
        title: "Second",
      });
      assert.deepEqual([status, code], [409, "conflict"]);
      assert.match(error, /c/);
      assert.equal((await service.data("GET", "/conversations/c")).conversation.title, "First");
    });

    test("POST /api/memory/conversations: of many at once with one id exactly one is created", async (t) => {
      const service = await served(t);
      const body = { userId: "ada", conversationId: "c" };
      const answers = await Promise.all(Array.from({ length: 12 }, () => service.call("POST", "/conversations", body)));
      assert.deepEqual(answers.map(({ status }) => status).toSorted(), [201, ...Array(11).fill(409)]);
      assert.equal((await service.data("GET", "/conversations")).total, 1);
    });

    test("ids of any characters come back as they were sent, and are told apart", async (t) => {
      const service = await served(t);
      const ids = [
        "a/b",
        "a%2Fb",
        "ü/ñ 漢字",
        "__proto__",
        "a:b",
        "a~b",
        "A",
        "a",
        " ",
        "😀".repeat(20),
        "x".repeat(256),
      ];
      await create(service, ...ids.map((id) => ({ conversationId: id, userId: id, resourceId: id })));
      for (const id of ids) {
        const { conversation } = await service.data("GET", `/conversations/${encodeURIComponent(id)}`);
        assert.deepEqual([conversation.id, conversation.userId, conversation.resourceId], [id, id, id]);
        const { conversations, total } = await service.data("GET", `/conversations?userId=${encodeURIComponent(id)}`);
        assert.deepEqual([total, conversations.length, conversations[0].id], [1, 1, id]);
      }
    });

    test("GET /api/memory/conversations gives the newest change first, 50 at most, with total, limit and offset", async (t) => {
      const service = await served(t);
      assert.deepEqual(await service.data("GET", "/conversations"), {
        conversations: [],
        total: 0,
        limit: 50,
        offset: 0,
      });
      const bodies = Array.from({ length: 53 }, (_, index) => ({ conversationId: `c${index}` }));
      await create(service, ...bodies);
      const page = await service.data("GET", "/conversations");
      assertShape("ConversationList", page);
      assert.deepEqual([page.total, page.limit, page.offset], [53, 50, 0]);
      assert.deepEqual(
        idsOf(page),
        bodies
          .map(({ conversationId }) => conversationId)
          .toReversed()
          .slice(0, 50),
      );
      const rest = await service.data("GET", "/conversations?limit=200&offset=50");
      assert.deepEqual([idsOf(rest), rest.total, rest.limit, rest.offset], [["c2", "c1", "c0"], 53, 200, 50]);
      const beyond = await service.data("GET", "/conversations?offset=99999");
      assert.deepEqual([idsOf(beyond), beyond.total], [[], 53]);
    });

    test("GET /api/memory/conversations filters by user, by resource and by both, with the total of what it filters", async (t) => {
      const service = await served(t);
      const rows = [
        ["a1", "ada", "x"],
        ["a2", "ada", "y"],
        ["b1", "bob", "x"],
        ["a3", "ada", "x"],
      ] as const;
      await create(
        service,
        ...rows.map(([conversationId, userId, resourceId]) => ({ conversationId, userId, resourceId })),
      );
      const cases: [query: string, ids: string[]][] = [
        ["", ["a3", "b1", "a2", "a1"]],
        ["?userId=ada", ["a3", "a2", "a1"]],
        ["?resourceId=x", ["a3", "b1", "a1"]],
        ["?userId=ada&resourceId=x", ["a3", "a1"]],
        ["?userId=ada&resourceId=x&orderDirection=asc", ["a1", "a3"]],
        ["?userId=nobody", []],
        ["?agentId=desk", ["a3", "b1", "a2", "a1"]],
        ["?agentId=clerk", []],
        ["?limit=1&offset=1&userId=ada", ["a2"]],
      ];
      for (const [query, ids] of cases) {
        const page = await service.data("GET", `/conversations${query}`);
        assert.deepEqual(idsOf(page), ids, query);
        if (!query.includes("limit")) assert.equal(page.total, ids.length, query);
        else assert.equal(page.total, 3, query);
      }
    });

    test("GET /api/memory/conversations sorts by each field in each direction, however that is written", async (t) => {
      const service = await served(t);
      await create(
        service,
        { conversationId: "one", title: "beta" },
        { conversationId: "two", title: "alpha" },
        { conversationId: "three", title: "gamma" },
      );
      await service.data("PATCH", "/conversations/two", { metadata: { touched: true } });
      const orders: [query: string, ids: string[]][] = [
        ["", ["two", "three", "one"]],
        ["orderBy=updated_at", ["two", "three", "one"]],
        ["orderBy=updated_at&orderDirection=ASC", ["one", "three", "two"]],
        ["orderBy=created_at", ["three", "two", "one"]],
        ["orderBy=created_at&orderDirection=asc", ["one", "two", "three"]],
        ["orderBy=title&orderDirection=Asc", ["two", "one", "three"]],
        ["orderBy=title&orderDirection=dESC", ["three", "one", "two"]],
        ["orderBy=title", ["three", "one", "two"]],
        ["orderBy=title&orderDirection=asc&limit=1&offset=1", ["one"]],
      ];
      for (const [query, ids] of orders) {
        for (const user of ["", "&userId=ada"]) {
          assert.deepEqual(idsOf(await service.data("GET", `/conversations?${query}${user}`)), ids, query + user);
        }
      }
    });

    test("PATCH /api/memory/conversations/:conversationId changes the title, and merges metadata key by key", async (t) => {
      const service = await served(t);
      await create(service, { conversationId: "c", title: "Old", metadata: { a: 1, b: { c: 2 }, d: 3 } });
      await service.data("POST", "/conversations/c/working-memory", { content: "Kept" });
      const before = (await service.data("GET", "/conversations/c")).conversation;
      await sleep(3);
      const data = await service.data("PATCH", "/conversations/c", { metadata: { a: null, b: { e: 4 }, f: 5 } });
      assertShape("ConversationReply", data);
      assert.deepEqual(data.conversation.metadata, { b: { e: 4 }, d: 3, f: 5 });
      assert.equal(data.conversation.title, "Old");
      assert.equal(data.conversation.createdAt, before.createdAt);
      assert.ok(data.conversation.updatedAt > before.updatedAt);
      const { conversation } = await service.data("PATCH", "/conversations/c", { title: "" });
      assert.deepEqual([conversation.title, conversation.metadata.d], ["", 3]);
      assert.deepEqual(await service.data("GET", "/conversations/c"), { conversation });
      assert.equal((await service.data("GET", "/conversations/c/working-memory")).content, "Kept");
    });

    test("PATCH of one conversation from many clients at once loses no key", async (t) => {
      const service = await served(t);
      await create(service, { conversationId: "c" });
      const keys = Array.from({ length: 20 }, (_, index) => `k${index}`);
      await Promise.all(keys.map((key) => service.data("PATCH", "/conversations/c", { metadata: { [key]: true } })));
      const { metadata } = (await service.data("GET", "/conversations/c")).conversation;
      assert.deepEqual(Object.keys(metadata).toSorted(), keys.toSorted());
    });

    test("DELETE /api/memory/conversations/:conversationId deletes it with its messages and its working memory", async (t) => {
      const service = await served(t);
      await create(service, { conversationId: "c" }, { conversationId: "other" });
      await service.data("POST", "/save-messages", {
        userId: "ada",
        conversationId: "c",
        messages: [said("x", { id: "m" })],
      });
      await service.data("POST", "/conversations/c/working-memory", { content: "Note" });
      assert.deepEqual(await service.data("DELETE", "/conversations/c"), { deleted: true });
      for (const [method, path] of [
        ["GET", ""],
        ["DELETE", ""],
        ["GET", "/messages"],
        ["GET", "/working-memory"],
      ] as const) {
        const { status, code } = await service.call(method, `/conversations/c${path}`);
        assert.deepEqual([status, code], [404, "not_found"], method + path);
      }
      assert.deepEqual(idsOf(await service.data("GET", "/conversations")), ["other"]);
      assert.equal((await service.data("GET", "/conversations?userId=ada")).total, 1);
      await create(service, { conversationId: "c" });
      assert.deepEqual((await service.data("GET", "/conversations/c/messages")).messages, []);
      assert.equal((await service.data("GET", "/conversations/c/working-memory")).content, null);
    });

    test("POST /api/memory/conversations/:conversationId/clone copies all but the ids: 201", async (t) => {
      const service = await served(t);
      await create(service, { conversationId: "c", title: "T", metadata: { a: 1 }, resourceId: "desk" });
      const messages = [said("one", { id: "m1" }), said("two", { id: "m2", metadata: { n: 2 } })];
      await service.data("POST", "/save-messages", { userId: "ada", conversationId: "c", messages });
      await service.data("POST", "/conversations/c/working-memory", { content: "Note" });
      const { status, data } = await service.call("POST", "/conversations/c/clone");
      assert.equal(status, 201);
      assertShape("ClonedConversation", data);
      const { id, title, metadata, resourceId, userId } = data.conversation;
      assert.notEqual(id, "c");
      assert.deepEqual([title, metadata, resourceId, userId, data.messageCount], ["T", { a: 1 }, "desk", "ada", 2]);
      const original = (await service.data("GET", "/conversations/c/messages")).messages;
      const copy = (await service.data("GET", `/conversations/${id}/messages`)).messages;
      const bare = (list: Loose[]) => list.map(({ role, parts, metadata }) => ({ role, parts, metadata }));
      assert.deepEqual(bare(copy), bare(original));
      for (const { id: copied } of copy) assert.ok(!["m1", "m2"].includes(copied));
      assert.equal((await service.data("GET", `/conversations/${id}/working-memory`)).content, "Note");
      await service.data("DELETE", "/conversations/c");
      assert.equal((await service.data("GET", `/conversations/${id}/messages`)).messages.length, 2);
    });

    test("POST .../clone takes an id, a title, metadata and a resource, and leaves messages out when asked to", async (t) => {
      const service = await served(t);
      await create(service, { conversationId: "c", title: "T", metadata: { a: 1 } });
      await service.data("POST", "/save-messages", { userId: "ada", conversationId: "c", messages: [said("one")] });
      const body = {
        newConversationId: "copy",
        title: "Copy",
        metadata: { b: 2 },
        resourceId: "r",
        includeMessages: false,
      };
      const data = await service.data("POST", "/conversations/c/clone", body);
      const { id, title, metadata, resourceId } = data.conversation;
      assert.deepEqual([id, title, metadata, resourceId, data.messageCount], ["copy", "Copy", { b: 2 }, "r", 0]);
      assert.deepEqual((await service.data("GET", "/conversations/copy/messages")).messages, []);
      const again = await service.call("POST", "/conversations/c/clone", body);
      assert.deepEqual([again.status, again.code], [409, "conflict"]);
    });
  });
}
