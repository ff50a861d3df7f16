/** Contract, "Memory": which memory a request means, and every request that is refused. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ROUTES } from "../../core/api/routes/index.ts";
import { type Answer, said, serveMemory } from "../support/memory.ts";
import { STORES } from "../support/memory-stores.ts";
import { TRANSPORTS } from "../support/transports.ts";

const LONG = "x".repeat(257);
const save = (...messages: unknown[]) => ({ userId: "ada", conversationId: "c", messages });

type Row = [method: string, path: string, body: unknown, status: number, error: RegExp];

/** Against a service with the conversation `c` of ada. */
const REFUSED: Row[] = [
  // Queries that do not parse.
  ["GET", "/conversations?limit=abc", undefined, 400, /^limit must be integer$/],
  ["GET", "/conversations?limit=0", undefined, 400, /^limit must be >= 1$/],
  ["GET", "/conversations?limit=201", undefined, 400, /^limit must be <= 200$/],
  ["GET", "/conversations?limit=1.5", undefined, 400, /^limit must be integer$/],
  ["GET", "/conversations?offset=-1", undefined, 400, /^offset must be >= 0$/],
  [
    "GET",
    "/conversations?orderBy=size",
    undefined,
    400,
    /^orderBy must be one of "created_at", "updated_at", "title"$/,
  ],
  ["GET", "/conversations?orderDirection=up", undefined, 400, /^orderDirection must be ASC or DESC$/],
  ["GET", `/conversations?userId=${LONG}`, undefined, 400, /^userId must NOT have more than 256 characters$/],
  ["GET", "/conversations/c/messages?limit=1001", undefined, 400, /^limit must be <= 1000$/],
  ["GET", "/conversations/c/messages?limit=0", undefined, 400, /^limit must be >= 1$/],
  ["GET", "/conversations/c/messages?before=yesterday", undefined, 400, /^before must be an ISO 8601 timestamp/],
  ["GET", "/conversations/c/messages?after=2026-02-30", undefined, 400, /^after must be an ISO 8601 timestamp/],
  ["GET", "/conversations/c/messages?after=2026-11-20T25:00:00Z", undefined, 400, /^after must be/],
  ["GET", "/conversations/c/messages?before=1732095000000", undefined, 400, /^before must be/],
  ["GET", "/conversations/c/messages?roles=user,robot", undefined, 400, /^roles must be a list of system, user/],
  ["GET", "/conversations/c/messages?roles=", undefined, 400, /^roles must be/],
  ["GET", "/search", undefined, 400, /^searchQuery is required$/],
  ["GET", "/search?searchQuery=", undefined, 400, /^searchQuery must NOT have fewer than 1 characters$/],
  ["GET", "/search?searchQuery=x&limit=0", undefined, 400, /^limit must be >= 1$/],
  ["GET", "/search?searchQuery=x&threshold=2", undefined, 400, /^threshold must be <= 1$/],
  ["GET", "/search?searchQuery=x", undefined, 400, /embedding/],
  // Bodies that are no good.
  ["POST", "/conversations", {}, 400, /^userId is required$/],
  ["POST", "/conversations", { userId: "" }, 400, /^userId must NOT have fewer than 1 characters$/],
  ["POST", "/conversations", { userId: 7 }, 400, /^userId must be string$/],
  ["POST", "/conversations", { userId: "ada", title: 7 }, 400, /^title must be string$/],
  ["POST", "/conversations", { userId: "ada", title: "x".repeat(501) }, 400, /^title must NOT have more than 500/],
  ["POST", "/conversations", { userId: "ada", metadata: { a: "x".repeat(66_000) } }, 400, /^metadata is too large/],
  ["PATCH", "/conversations/c", { metadata: { a: "x".repeat(66_000) } }, 400, /^metadata is too large/],
  ["POST", "/conversations/c/clone", { metadata: { a: "x".repeat(66_000) } }, 400, /^metadata is too large/],
  ["POST", "/conversations", { userId: "ada", metadata: [] }, 400, /^metadata must be object$/],
  ["POST", "/conversations", { userId: "ada", conversationId: LONG }, 400, /^conversationId must NOT have more/],
  ["POST", "/conversations", [], 400, /^body must be object$/],
  ["POST", "/conversations", "{", 400, /^body is not valid JSON/],
  ["POST", "/conversations", undefined, 400, /^body is required/],
  ["PATCH", "/conversations/c", {}, 400, /^title or metadata is required$/],
  ["PATCH", "/conversations/c", { stray: 1 }, 400, /^title or metadata is required$/],
  ["PATCH", "/conversations/c", { title: null }, 400, /^title must be string$/],
  ["PATCH", "/conversations/c", { metadata: null }, 400, /^metadata must be object$/],
  ["POST", "/conversations/c/clone", { includeMessages: "yes" }, 400, /^includeMessages must be boolean$/],
  ["POST", "/conversations/c/clone", { newConversationId: "" }, 400, /^newConversationId must NOT/],
  ["POST", "/save-messages", { userId: "ada", conversationId: "c" }, 400, /^messages is required$/],
  ["POST", "/save-messages", save(), 400, /^messages must NOT have fewer than 1 items$/],
  [
    "POST",
    "/save-messages",
    save(...Array(1001).fill(said("x"))),
    400,
    /^messages must NOT have more than 1000 items$/,
  ],
  ["POST", "/save-messages", save("text"), 400, /^messages\[0\] must be object$/],
  ["POST", "/save-messages", save({ content: "x" }), 400, /^messages\[0\]\.role is required$/],
  [
    "POST",
    "/save-messages",
    save({ role: "robot", content: "x" }),
    400,
    /^messages\[0\]\.role must be one of "system"/,
  ],
  ["POST", "/save-messages", save({ role: "user" }), 400, /^messages\[0\]\.content is required$/],
  [
    "POST",
    "/save-messages",
    save(said("x"), { role: "user", parts: [{}] }),
    400,
    /^messages\[1\]\.parts\[0\]\.type is required$/,
  ],
  ["POST", "/save-messages", save({ role: "user", parts: "x" }), 400, /^messages\[0\]\.parts must be array$/],
  ["POST", "/save-messages", save({ message: { role: "user" } }), 400, /^messages\[0\]\.message\.content is required$/],
  ["POST", "/save-messages", save({ message: "x" }), 400, /^messages\[0\]\.message must be object$/],
  [
    "POST",
    "/save-messages",
    save(said("x", { createdAt: "now" })),
    400,
    /^messages\[0\]\.createdAt must be an ISO 8601/,
  ],
  [
    "POST",
    "/save-messages",
    save({ message: said("x", { createdAt: "2026" }) }),
    400,
    /^messages\[0\]\.message\.createdAt must be an ISO 8601/,
  ],
  [
    "POST",
    "/save-messages",
    { messages: [said("x"), said("y", { userId: "ada" })] },
    400,
    /^messages\[0\]\.conversationId is required, there or in the body; messages\[0\]\.userId is required, there or in the body; messages\[1\]\.conversationId is required/,
  ],
  ["POST", "/messages/delete", { userId: "ada", messageIds: ["m"] }, 400, /^conversationId is required$/],
  ["POST", "/messages/delete", { conversationId: "c", messageIds: ["m"] }, 400, /^userId is required$/],
  ["POST", "/messages/delete", { userId: "ada", conversationId: "c" }, 400, /^messageIds is required$/],
  [
    "POST",
    "/messages/delete",
    { userId: "ada", conversationId: "c", messageIds: [] },
    400,
    /^messageIds must NOT have fewer/,
  ],
  [
    "POST",
    "/messages/delete",
    { userId: "ada", conversationId: "c", messageIds: [1] },
    400,
    /^messageIds\[0\] must be string$/,
  ],
  // What is not there.
  ["GET", "/conversations/nowhere", undefined, 404, /nowhere/],
  ["GET", `/conversations/${LONG}`, undefined, 404, /./],
  ["GET", "/conversations/%E0%A4", undefined, 400, /percent-encoding/],
  ["PATCH", "/conversations/nowhere", { title: "x" }, 404, /nowhere/],
  ["DELETE", "/conversations/nowhere", undefined, 404, /nowhere/],
  ["POST", "/conversations/nowhere/clone", {}, 404, /nowhere/],
  ["GET", "/conversations/nowhere/messages", undefined, 404, /nowhere/],
  ["GET", "/conversations/nowhere/working-memory", undefined, 404, /nowhere/],
  ["POST", "/conversations/nowhere/working-memory", { content: "x" }, 404, /nowhere/],
  ["POST", "/save-messages", { ...save(said("x")), conversationId: "nowhere" }, 404, /nowhere/],
  ["POST", "/save-messages", { ...save(said("x")), userId: "bob" }, 404, /\bc\b/],
  ["POST", "/messages/delete", { userId: "ada", conversationId: "nowhere", messageIds: ["m"] }, 404, /nowhere/],
  // Which agent.
  ["GET", "/conversations?agentId=nobody", undefined, 404, /^agent "nobody" does not exist$/],
  ["GET", "/conversations?agentId=constructor", undefined, 404, /^agent "constructor" does not exist$/],
  ["GET", "/conversations?agentId=echo", undefined, 400, /^agent "echo" has no memory$/],
  ["GET", "/conversations/c?agentId=nobody", undefined, 404, /^agent "nobody" does not exist$/],
  ["GET", "/conversations/c?agentId=clerk", undefined, 404, /\bc\b/],
  ["DELETE", "/conversations/c?agentId=echo", undefined, 400, /^agent "echo" has no memory$/],
  ["POST", "/conversations", { userId: "ada", agentId: "nobody" }, 404, /^agent "nobody" does not exist$/],
  ["POST", "/save-messages", { ...save(said("x")), agentId: "echo" }, 400, /^agent "echo" has no memory$/],
  [
    "POST",
    "/messages/delete",
    { userId: "a", conversationId: "c", messageIds: ["m"], agentId: "nobody" },
    404,
    /nobody/,
  ],
  ["GET", "/search?searchQuery=x&agentId=nobody", undefined, 404, /^agent "nobody" does not exist$/],
];

const CODES: Record<number, string> = { 400: "invalid_input", 404: "not_found" };

for (const store of STORES) {
  for (const transport of TRANSPORTS) {
    test(`what the memory API refuses on ${store.name} over ${transport}: every field by its name, and nothing changes`, async (t) => {
      const service = await serveMemory(t, await store.url(t), { server: { transport } });
      await service.data("POST", "/conversations", { userId: "ada", conversationId: "c" });
      const before = await service.data("GET", "/conversations");
      for (const [method, path, body, status, error] of REFUSED) {
        const init = method !== "GET" && method !== "DELETE" && body === undefined ? "" : body;
        const answer: Answer = await service.call(method, path, init);
        const row = `${method} ${path.slice(0, 80)} ${JSON.stringify(body)?.slice(0, 120)}: ${answer.error}`;
        assert.deepEqual([answer.status, answer.code], [status, CODES[status]], row);
        assert.match(answer.error, error, row);
      }
      assert.deepEqual(await service.data("GET", "/conversations"), before);
    });
  }
}

test("every row of the memory API is among the requests that are refused", () => {
  const rows = ROUTES.filter(({ operation }) => operation.startsWith("memory."));
  const patterns = rows.map(({ method, path }) => [
    method,
    path.replace("/api/memory", "").replace(/:[^/]+/, "[^/?]+"),
  ]);
  const idle = patterns.filter(
    ([method, pattern]) =>
      !REFUSED.some(([used, path]) => used === method && new RegExp(`^${pattern}(\\?|$)`).test(path)),
  );
  assert.deepEqual([rows.length, idle], [12, []]);
});

describe("which memory a request means", () => {
  const MANY = {
    memory: { one: {}, two: {} },
    agents: {
      a: { model: "demo/echo", memory: "one" },
      b: { model: "demo/echo", memory: "two" },
      c: { model: "demo/echo", memory: "one" },
    },
  };
  const list = "/conversations";

  test("agents that share a memory share its conversations; others do not", async (t) => {
    const service = await serveMemory(t, "memory:", MANY);
    const { conversation } = await service.data("POST", list, { agentId: "a", userId: "ada", conversationId: "x" });
    assert.equal(conversation.resourceId, "a");
    assert.deepEqual(await service.data("GET", "/conversations/x?agentId=c"), { conversation });
    assert.equal((await service.call("GET", "/conversations/x?agentId=b")).status, 404);
    const twin = await service.data("POST", list, { agentId: "b", userId: "bob", conversationId: "x" });
    assert.equal(twin.conversation.userId, "bob");
    assert.equal((await service.data("GET", `${list}?agentId=a`)).total, 1);
  });

  test("a request of the memory API: without a global memory and with several agents that have one, agentId is required", async (t) => {
    const service = await serveMemory(t, "memory:", MANY);
    for (const [method, path, body] of [
      ["GET", list, undefined],
      ["POST", list, { userId: "ada" }],
      ["GET", "/conversations/x", undefined],
      ["GET", "/search?searchQuery=x", undefined],
    ] as const) {
      const { status, error } = await service.call(method, path, body);
      assert.equal(status, 400);
      assert.match(error, /^agentId is required/);
    }
  });

  test("a request of the memory API: without a global memory the only agent with a memory is meant", async (t) => {
    const agents = { a: { model: "demo/echo", memory: "one" }, b: { model: "demo/echo" } };
    const service = await serveMemory(t, "memory:", { memory: { one: {} }, agents });
    const { conversation } = await service.data("POST", list, { userId: "ada" });
    assert.equal(conversation.resourceId, "a");
    assert.equal((await service.data("GET", `${list}?agentId=a`)).total, 1);
    assert.match((await service.call("GET", `${list}?agentId=b`)).error, /agent "b" has no memory/);
  });

  test("the memory API without any memory: every request is 400 and says what to declare", async (t) => {
    const agents = { a: { model: "demo/echo", memory: false } };
    const service = await serveMemory(t, "memory:", { memory: {}, agents });
    const { status, error } = await service.call("GET", list);
    assert.equal(status, 400);
    assert.match(error, /declare one under memory/);
  });

  test("the global memory is there for clients even when no agent uses it", async (t) => {
    const agents = { a: { model: "demo/echo", memory: false } };
    const service = await serveMemory(t, "memory:", { memory: { default: {} }, agents });
    const { conversation } = await service.data("POST", list, { userId: "ada" });
    assert.equal(conversation.resourceId, "default");
  });
});
