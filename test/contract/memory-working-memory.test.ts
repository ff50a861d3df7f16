/** Contract, "Memory": working memory, on every store. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { assertShape, serveMemory } from "../support/memory.ts";
import { STORES } from "../support/memory-stores.ts";

const SCHEMA = {
  type: "object",
  properties: {
    name: { type: "string" },
    tags: { type: "array", items: { type: "string" } },
    address: { type: "object", properties: { city: { type: "string" }, zip: { type: "string" } } },
  },
  additionalProperties: false,
};

const MANIFEST = {
  memory: {
    default: { workingMemory: { template: "# Profile" } },
    person: { workingMemory: { scope: "user" } },
    form: { workingMemory: { schema: SCHEMA } },
    free: { workingMemory: { format: "json" } },
    none: {},
  },
  agents: {
    desk: { model: "demo/echo" },
    person: { model: "demo/echo", memory: "person" },
    form: { model: "demo/echo", memory: "form" },
    free: { model: "demo/echo", memory: "free" },
    none: { model: "demo/echo", memory: "none" },
  },
};

for (const store of STORES) {
  const served = async (t: TestContext) => {
    const service = await serveMemory(t, await store.url(t), MANIFEST);
    for (const agentId of Object.keys(MANIFEST.agents)) {
      for (const [id, userId] of [
        ["1", "ada"],
        ["2", "ada"],
        ["3", "bob"],
      ]) {
        await service.data("POST", "/conversations", { agentId, userId, conversationId: `${agentId}-${id}` });
      }
    }
    const path = (id: string, query = "") =>
      `/conversations/${id}/working-memory?agentId=${id.split("-")[0]}${query && `&${query}`}`;
    return {
      service,
      read: (id: string, query?: string) => service.data("GET", path(id, query)),
      write: (id: string, body: object) => service.data("POST", path(id), body),
      tryRead: (id: string, query?: string) => service.call("GET", path(id, query)),
      tryWrite: (id: string, body: unknown) => service.call("POST", path(id), body),
    };
  };

  describe(`/api/memory/conversations/:conversationId/working-memory on ${store.name}`, () => {
    test("GET .../working-memory: null with nothing stored, then what was written, with scope, format and template", async (t) => {
      const { read, write } = await served(t);
      const empty = await read("desk-1");
      assertShape("WorkingMemory", empty);
      const settings = { scope: "conversation", format: "markdown", template: "# Profile" };
      assert.deepEqual(empty, { content: null, ...settings });
      assert.deepEqual(await write("desk-1", { content: "# Ada\n\nLikes tea" }), { updated: true });
      assert.deepEqual(await read("desk-1"), { content: "# Ada\n\nLikes tea", ...settings });
      assert.deepEqual(await read("desk-1", "scope=conversation&userId=ada"), {
        content: "# Ada\n\nLikes tea",
        ...settings,
      });
      assert.equal((await read("desk-2")).content, null);
    });

    test("POST .../working-memory replaces, or appends to markdown after a blank line", async (t) => {
      const { read, write } = await served(t);
      await write("desk-1", { content: "first", mode: "append" });
      assert.equal((await read("desk-1")).content, "first");
      await write("desk-1", { content: "second", mode: "append" });
      assert.equal((await read("desk-1")).content, "first\n\nsecond");
      await write("desk-1", { content: "third", mode: "replace" });
      assert.equal((await read("desk-1")).content, "third");
    });

    test("GET .../working-memory: with scope user all conversations of a user share one working memory", async (t) => {
      const { read, write } = await served(t);
      await write("person-1", { content: "Ada's", userId: "ada" });
      assert.deepEqual(await read("person-2", "scope=user&userId=ada"), {
        content: "Ada's",
        scope: "user",
        format: "markdown",
        template: null,
      });
      assert.equal((await read("person-2")).content, "Ada's");
      assert.equal((await read("person-3")).content, null);
      await write("person-2", { content: "More", mode: "append" });
      assert.equal((await read("person-1")).content, "Ada's\n\nMore");
    });

    test("POST .../working-memory with a schema takes objects and JSON text, and merges deeply", async (t) => {
      const { read, write } = await served(t);
      const content = async () => {
        const memory = await read("form-1");
        assert.equal(memory.format, "json");
        return JSON.parse(memory.content);
      };
      await write("form-1", { content: { name: "Ada", tags: ["a"], address: { city: "Lisbon" } } });
      await write("form-1", { content: { tags: ["a", "b"], address: { zip: "1000" } }, mode: "append" });
      assert.deepEqual(await content(), { name: "Ada", tags: ["a", "b"], address: { city: "Lisbon", zip: "1000" } });
      await write("form-1", { content: '{"name":"Eve"}' });
      assert.deepEqual(await content(), { name: "Eve" });
    });

    test("POST .../working-memory joins lists of 20,000 items at once, and refuses content that is too large or too deep", async (t) => {
      const { read, write, tryWrite } = await served(t);
      const list = (from: number) => ({ list: Array.from({ length: 20_000 }, (_, index) => [from + index]) });
      await write("free-1", { content: list(0), mode: "append" });
      await write("free-1", { content: JSON.stringify(list(10_000)), mode: "append" });
      const { content } = await read("free-1");
      assert.deepEqual(
        JSON.parse(content).list,
        Array.from({ length: 30_000 }, (_, index) => [index]),
      );
      const deep = `{"list":${"[".repeat(50_000)}${"]".repeat(50_000)}}`;
      for (const [wrong, error] of [
        [{ list: ["x".repeat(262_144)] }, /content: a working memory may have at most 262144 characters/],
        [deep, /content is nested deeper than/],
      ] as const) {
        const answer = await tryWrite("free-1", { content: wrong, mode: "append" });
        assert.deepEqual([answer.status, answer.code], [400, "invalid_input"]);
        assert.match(answer.error, error);
      }
      assert.equal((await read("free-1")).content, content);
    });

    test("POST .../working-memory: content that does not fit is 400, and leaves the working memory as it was", async (t) => {
      const { read, write, tryWrite } = await served(t);
      await write("form-1", { content: { name: "Ada" } });
      await write("desk-1", { content: "Ada" });
      const bodies: [id: string, body: unknown, error: RegExp][] = [
        ["form-1", { content: { name: 1 } }, /name must be string/],
        ["form-1", { content: { other: 1 } }, /other/],
        ["form-1", { content: { name: 2 }, mode: "append" }, /name must be string/],
        ["form-1", { content: "no JSON" }, /JSON/],
        ["form-1", { content: '"text"' }, /object/],
        ["desk-1", { content: { a: 1 } }, /content/],
        ["desk-1", { content: "x", userId: "bob" }, /userId/],
        ["desk-1", { content: "x", scope: "user" }, /scope/],
        ["desk-1", { content: "x", mode: "prepend" }, /mode must be one of "replace", "append"/],
        ["desk-1", {}, /content is required/],
        ["desk-1", { content: 7 }, /content must be string or object/],
        ["none-1", { content: "x" }, /working memory/],
      ];
      for (const [id, body, error] of bodies) {
        const answer = await tryWrite(id, body);
        assert.deepEqual([answer.status, answer.code], [400, "invalid_input"], JSON.stringify(body));
        assert.match(answer.error, error);
      }
      assert.deepEqual(JSON.parse((await read("form-1")).content), { name: "Ada" });
      assert.equal((await read("desk-1")).content, "Ada");
    });

    test("GET .../working-memory: another scope, another user and no working memory are 400, another conversation 404", async (t) => {
      const { tryRead, tryWrite } = await served(t);
      const cases: [id: string, query: string, status: number, error: RegExp][] = [
        ["desk-1", "scope=user&userId=ada", 400, /scope/],
        ["desk-1", "scope=all", 400, /scope must be one of "conversation", "user"/],
        ["desk-1", "userId=bob", 400, /userId/],
        ["person-1", "scope=conversation", 400, /scope/],
        ["person-1", "scope=user", 400, /userId is required/],
        ["person-1", "scope=user&userId=bob", 400, /userId/],
        ["none-1", "", 400, /working memory/],
        ["desk-9", "", 404, /desk-9/],
        ["person-9", "scope=user&userId=ada", 404, /person-9/],
      ];
      for (const [id, query, status, error] of cases) {
        const answer = await tryRead(id, query);
        assert.equal(answer.status, status, `${id}?${query}: ${answer.error}`);
        assert.match(answer.error, error);
      }
      assert.equal((await tryWrite("desk-9", { content: "x" })).status, 404);
    });

    test("POST .../working-memory from many clients at once loses no addition", async (t) => {
      const { read, write } = await served(t);
      const lines = Array.from({ length: 20 }, (_, index) => `line ${index}`);
      await Promise.all(lines.map((content) => write("desk-1", { content, mode: "append" })));
      assert.deepEqual((await read("desk-1")).content.split("\n\n").toSorted(), lines.toSorted());
    });
  });
}
