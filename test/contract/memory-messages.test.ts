/** Contract, "Memory": messages, on every store. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { assertShape, ISO, type MemoryService, said, serveMemory } from "../support/memory.ts";
import { STORES } from "../support/memory-stores.ts";
import type { Loose } from "../support/served-upstream.ts";

const idsOf = ({ messages }: Loose): string[] => messages.map(({ id }: Loose) => id);
const at = (second: number) => `2026-11-20T09:30:${String(second).padStart(2, "0")}.000Z`;

for (const store of STORES) {
  /** With the conversations `c` and `d` of ada, and `b` of bob. */
  const served = async (t: TestContext): Promise<MemoryService> => {
    const service = await serveMemory(t, await store.url(t));
    for (const [conversationId, userId] of [
      ["c", "ada"],
      ["d", "ada"],
      ["b", "bob"],
    ]) {
      await service.data("POST", "/conversations", { conversationId, userId });
    }
    return service;
  };
  const save = (service: MemoryService, ...messages: object[]) =>
    service.data("POST", "/save-messages", { userId: "ada", conversationId: "c", messages });

  describe(`/api/memory/conversations/:conversationId/messages on ${store.name}`, () => {
    test("POST /api/memory/save-messages keeps UI and model messages, bare and wrapped, in the form they came in", async (t) => {
      const service = await served(t);
      const parts = [
        { type: "reasoning", text: "Hm" },
        {
          type: "tool-order",
          toolCallId: "t1",
          state: "output-available",
          input: { n: 1 },
          output: { ok: [1.5, null] },
        },
        { type: "file", mediaType: "image/png", url: "data:image/png;base64,iVBORw0KGgo=" },
      ];
      const content = [
        { type: "tool-result", toolCallId: "t1", toolName: "order", output: { type: "text", value: "é\u2028" } },
      ];
      const saved = await save(
        service,
        said("Hello", { id: "m1", metadata: { a: 1 }, createdAt: at(1) }),
        { message: { id: "m2", role: "assistant", parts, createdAt: at(2) } },
        { role: "user", content: "Plain", id: "m3", createdAt: at(3) },
        { message: { id: "m4", role: "tool", content, createdAt: at(4) } },
        { role: "system", content: "", id: "m5", createdAt: at(5), stray: true, userId: "ada" },
      );
      assert.deepEqual(saved, { saved: 5 });
      const data = await service.data("GET", "/conversations/c/messages");
      assertShape("MessageList", data);
      assert.deepEqual(data.messages, [
        { id: "m1", role: "user", parts: [{ type: "text", text: "Hello" }], metadata: { a: 1 }, createdAt: at(1) },
        { id: "m2", role: "assistant", parts, metadata: {}, createdAt: at(2) },
        { id: "m3", role: "user", content: "Plain", metadata: {}, createdAt: at(3) },
        { id: "m4", role: "tool", content, metadata: {}, createdAt: at(4) },
        { id: "m5", role: "system", content: "", metadata: {}, createdAt: at(5) },
      ]);
      const { conversation } = await service.data("GET", "/conversations/c");
      assert.deepEqual(data.conversation, conversation);
    });

    test("POST /api/memory/save-messages makes ids and times, and keeps the order of a batch without times", async (t) => {
      const service = await served(t);
      await save(service, ...Array.from({ length: 30 }, (_, index) => said(`${index}`)));
      await save(service, said("30"), said("31"));
      const { messages } = await service.data("GET", "/conversations/c/messages");
      assert.deepEqual(
        messages.map(({ parts }: Loose) => parts[0].text),
        Array.from({ length: 32 }, (_, index) => `${index}`),
      );
      assert.equal(new Set(messages.map(({ id }: Loose) => id)).size, 32);
      for (const { id, createdAt } of messages) {
        assert.match(id, /^[\w-]{8,}$/);
        assert.match(createdAt, ISO);
      }
    });

    test("POST /api/memory/save-messages: an entry's conversation and user go before the body's, and a batch may span conversations", async (t) => {
      const service = await served(t);
      const messages = [
        said("1", { id: "1" }),
        said("2", { id: "2", conversationId: "d" }),
        { conversationId: "b", userId: "bob", message: said("3", { id: "3" }) },
        { userId: "ada", message: said("4", { id: "4" }) },
      ];
      const body = { userId: "ada", conversationId: "c", messages };
      assert.deepEqual(await service.data("POST", "/save-messages", body), { saved: 4 });
      const all = await Promise.all(["c", "d", "b"].map((id) => service.data("GET", `/conversations/${id}/messages`)));
      assert.deepEqual(all.map(idsOf), [["1", "4"], ["2"], ["3"]]);
      const alone = { messages: [said("5", { id: "5", userId: "ada", conversationId: "d" })] };
      assert.deepEqual(await service.data("POST", "/save-messages", alone), { saved: 1 });
      assert.deepEqual(idsOf(await service.data("GET", "/conversations/d/messages")), ["2", "5"]);
    });

    test("POST /api/memory/save-messages saves all of a batch or nothing", async (t) => {
      const service = await served(t);
      const foreign = [said("1"), said("2", { conversationId: "b" })];
      const unknown = [said("1"), said("2", { conversationId: "nowhere" })];
      for (const messages of [foreign, unknown]) {
        const { status, code } = await service.call("POST", "/save-messages", {
          userId: "ada",
          conversationId: "c",
          messages,
        });
        assert.deepEqual([status, code], [404, "not_found"]);
      }
      assert.deepEqual((await service.data("GET", "/conversations/c/messages")).messages, []);
      assert.deepEqual((await service.data("GET", "/conversations/b/messages")).messages, []);
    });

    test("POST /api/memory/save-messages with an id that exists replaces the message where it is", async (t) => {
      const service = await served(t);
      await save(
        service,
        said("1", { id: "1" }),
        said("2", { id: "2", metadata: { old: true } }),
        said("3", { id: "3" }),
      );
      const [, before] = (await service.data("GET", "/conversations/c/messages")).messages;
      await sleep(3);
      assert.deepEqual(await save(service, { id: "2", role: "assistant", content: "new" }), { saved: 1 });
      const { messages } = await service.data("GET", "/conversations/c/messages");
      assert.deepEqual(idsOf({ messages }), ["1", "2", "3"]);
      const { createdAt, ...rest } = messages[1];
      assert.deepEqual(rest, { id: "2", role: "assistant", content: "new", metadata: {} });
      assert.equal(createdAt, before.createdAt);
      await service.data("POST", "/save-messages", {
        userId: "ada",
        conversationId: "d",
        messages: [said("x", { id: "2" })],
      });
      assert.equal((await service.data("GET", "/conversations/c/messages")).messages[1].content, "new");
    });

    test("POST /api/memory/save-messages bumps the conversation's updatedAt, and it comes first in the list", async (t) => {
      const service = await served(t);
      const before = (await service.data("GET", "/conversations/c")).conversation;
      await sleep(3);
      await save(service, said("1", { createdAt: at(1) }));
      const { conversation } = await service.data("GET", "/conversations/c");
      assert.ok(conversation.updatedAt > before.updatedAt);
      assert.equal(conversation.createdAt, before.createdAt);
      const { conversations } = await service.data("GET", "/conversations?userId=ada");
      assert.deepEqual([conversations[0].id, conversations.length], ["c", 2]);
    });

    test("GET .../messages: the newest that match, in order; before and after are exclusive, in any zone", async (t) => {
      const service = await served(t);
      const roles = ["user", "assistant", "user", "assistant", "tool", "system"];
      await save(
        service,
        ...roles.map((role, index) => ({ id: `${index}`, role, content: "x", createdAt: at(index) })),
      );
      const cases: [query: string, ids: string[]][] = [
        ["", ["0", "1", "2", "3", "4", "5"]],
        ["limit=2", ["4", "5"]],
        [`before=${at(3)}`, ["0", "1", "2"]],
        [`before=${at(3)}&limit=2`, ["1", "2"]],
        [`after=${at(3)}`, ["4", "5"]],
        [`after=${at(1)}&before=${at(4)}`, ["2", "3"]],
        [`after=${at(1)}&before=${at(4)}&limit=1`, ["3"]],
        ["after=2026-11-20T10:30:03%2B01:00", ["4", "5"]],
        ["after=2026-11-20T10:30:03+01:00", ["4", "5"]],
        ["before=2026-11-20", []],
        ["after=2026-11-20&limit=1", ["5"]],
        ["roles=user", ["0", "2"]],
        ["roles=user,assistant", ["0", "1", "2", "3"]],
        ["roles=tool,%20system", ["4", "5"]],
        ["roles=assistant&limit=1", ["3"]],
        [`roles=user&before=${at(2)}`, ["0"]],
        ["userId=ada&limit=1", ["5"]],
      ];
      for (const [query, ids] of cases) {
        assert.deepEqual(idsOf(await service.data("GET", `/conversations/c/messages?${query}`)), ids, query);
      }
      const other = await service.call("GET", "/conversations/c/messages?userId=bob");
      assert.equal(other.status, 404);
    });

    test("POST /api/memory/save-messages: messages saved together without dates have rising dates, so that each is on a page by time", async (t) => {
      const service = await served(t);
      const ids = Array.from({ length: 25 }, (_, index) => `${index}`);
      await save(service, ...ids.map((id) => said("x", { id })));
      const seen: string[] = [];
      for (let query = "limit=4"; ; ) {
        const { messages } = await service.data("GET", `/conversations/c/messages?${query}`);
        if (messages.length === 0) break;
        seen.unshift(...idsOf({ messages }));
        query = `limit=4&before=${messages[0].createdAt}`;
      }
      assert.deepEqual(seen, ids);
    });

    test("GET .../messages: beforeId and afterId name a message, and leave out none of the same moment", async (t) => {
      const service = await served(t);
      const ids = Array.from({ length: 9 }, (_, index) => `${index}`);
      // Ids of the client, and those that the service makes.
      await save(service, ...ids.map((id) => said("x", id < "5" ? { id, createdAt: at(1) } : { createdAt: at(1) })));
      const all = idsOf(await service.data("GET", "/conversations/c/messages"));
      assert.equal(all.length, 9);
      const page = async (query: string) => idsOf(await service.data("GET", `/conversations/c/messages?${query}`));
      for (const [index, id] of all.entries()) {
        assert.deepEqual(await page(`beforeId=${id}`), all.slice(0, index));
        assert.deepEqual(await page(`afterId=${id}`), all.slice(index + 1));
        assert.deepEqual(await page(`beforeId=${id}&limit=2&roles=user`), all.slice(0, index).slice(-2));
      }
      assert.deepEqual(await page(`afterId=${all[2]}&beforeId=${all[7]}&limit=3`), all.slice(4, 7));
      assert.deepEqual(await page(`afterId=${all[2]}&before=${at(1)}`), []);
      assert.deepEqual(await page(`afterId=${all[2]}&after=${at(0)}&before=${at(2)}`), all.slice(3));
      assert.deepEqual(await page(`afterId=${all[7]}&beforeId=${all[2]}`), []);
    });

    test("GET .../messages: a beforeId of no message of the conversation is 400, for its owner alone", async (t) => {
      const service = await served(t);
      await save(service, said("x", { id: "1" }));
      const { status, error } = await service.call("GET", "/conversations/c/messages?beforeId=gone");
      assert.deepEqual([status, error], [400, 'beforeId: this conversation has no message "gone"']);
      const other = await service.call("GET", "/conversations/c/messages?beforeId=gone&userId=bob");
      assert.equal(other.status, 404);
    });

    test("GET .../messages: 100 unless the query asks for up to 1000", async (t) => {
      const service = await served(t);
      const messages = Array.from({ length: 1000 }, (_, index) => said("x", { id: `${index}` }));
      assert.deepEqual(await save(service, ...messages), { saved: 1000 });
      await save(service, said("x", { id: "1000" }));
      const usual = idsOf(await service.data("GET", "/conversations/c/messages"));
      assert.deepEqual([usual.length, usual[0], usual.at(-1)], [100, "901", "1000"]);
      const most = idsOf(await service.data("GET", "/conversations/c/messages?limit=1000"));
      assert.deepEqual([most.length, most[0], most.at(-1)], [1000, "1", "1000"]);
      const rare = idsOf(await service.data("GET", "/conversations/c/messages?roles=assistant"));
      assert.deepEqual(rare, []);
    });

    // The bound is above the engines: the quickest of them tells.
    if (store.name === "memory:")
      test("GET .../messages: a page larger than 64 MiB is refused with what to do, and smaller ones are given", async (t) => {
        const service = await served(t);
        const text = "x".repeat(1_000_000);
        for (let index = 0; index < 68; index++) await save(service, said(text));
        const { status, error } = await service.call("GET", "/conversations/c/messages");
        assert.equal(status, 400);
        assert.match(error, /larger than 64 MiB together: ask for fewer with limit/);
        const page = await service.data("GET", "/conversations/c/messages?limit=5");
        assert.equal(page.messages.length, 5);
        assert.equal((await service.get("/readyz")).status, 200);
      });

    test("messages saved by many clients at once are all there, each once", async (t) => {
      const service = await served(t);
      const writes = Array.from({ length: 40 }, (_, index) =>
        save(service, said("x", { id: `a${index}` }), said("x", { id: `b${index}` })),
      );
      await Promise.all(writes);
      const ids = idsOf(await service.data("GET", "/conversations/c/messages?limit=1000"));
      assert.equal(ids.length, 80);
      assert.equal(new Set(ids).size, 80);
      for (const [index, id] of ids.entries())
        if (id.startsWith("a")) assert.equal(ids[index + 1], id.replace("a", "b"));
    });

    test("POST /api/memory/messages/delete deletes those that are there, and says how many", async (t) => {
      const service = await served(t);
      await save(service, said("1", { id: "1" }), said("2", { id: "2" }), said("3", { id: "3" }));
      const [generated] = idsOf(await service.data("GET", "/conversations/c/messages"));
      assert.equal(generated, "1");
      await save(service, said("made"));
      const made = idsOf(await service.data("GET", "/conversations/c/messages")).at(-1)!;
      const body = { userId: "ada", conversationId: "c", messageIds: ["2", made, "nowhere", "2"] };
      assert.deepEqual(await service.data("POST", "/messages/delete", body), { deleted: 2 });
      assert.deepEqual(idsOf(await service.data("GET", "/conversations/c/messages")), ["1", "3"]);
      assert.deepEqual(await service.data("POST", "/messages/delete", body), { deleted: 0 });
      const foreign = await service.call("POST", "/messages/delete", { ...body, userId: "bob", messageIds: ["1"] });
      assert.equal(foreign.status, 404);
      assert.deepEqual(idsOf(await service.data("GET", "/conversations/c/messages")), ["1", "3"]);
    });

    test("POST /api/memory/messages/delete of one message twice at once counts it once", async (t) => {
      const service = await served(t);
      await save(service, said("1", { id: "1" }));
      const body = { userId: "ada", conversationId: "c", messageIds: ["1"] };
      const answers = await Promise.all(
        Array.from({ length: 5 }, () => service.data("POST", "/messages/delete", body)),
      );
      assert.equal(
        answers.reduce((sum, { deleted }) => sum + deleted, 0),
        1,
      );
    });
  });
}
