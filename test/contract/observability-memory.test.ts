/** `/observability/memory/*`: what agents remember, as the console of VoltAgent asks for it, on every store. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { validators } from "../../generated/all-validators.js";
import { STORES } from "../support/memory-stores.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { SECRET, token } from "../support/tokens.ts";

const CONSOLE = { "x-console-access-key": "the-key-of-the-console" };
const as = (sub: string) => ({ authorization: `Bearer ${token({ sub })}` });

const MANIFEST = manifestWith(
  { memory: "default" },
  {
    memory: { default: { workingMemory: {} }, own: { workingMemory: { scope: "user", format: "json" } } },
    auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET } },
  },
);
const agent = (name: string, memory: string | false) => ({ name, instructions: "Help.", model: "demo/echo", memory });
const AGENTS = {
  ...(MANIFEST.agents as object),
  second: agent("Second", "default"),
  third: agent("Third", "own"),
  none: agent("None", false),
};

/** Conversations in the order in which they are made: id, agent, user. */
const MADE = [
  ["a1", "assistant", "ada"],
  ["b1", "assistant", "bob"],
  ["a2", "second", "ada"],
  ["a3", "third", "ada"],
  ["b2", "second", "bob"],
] as const;

for (const store of STORES) {
  describe(`/observability/memory on ${store.name}`, () => {
    const ends: (() => unknown)[] = [];
    let service: TestService;
    /** With consoleRoutes: [], users see what is theirs. */
    let users: TestService;
    before(async () => {
      const test = { after: (end: () => unknown) => void ends.push(end) };
      const options = { env: { SERVICE_CONSOLE_ACCESS_KEY: CONSOLE["x-console-access-key"] } };
      const serve = async (auth: object) => {
        const url = await store.url(test);
        const made = { ...MANIFEST, agents: AGENTS, store: url, auth: { ...(MANIFEST.auth as object), ...auth } };
        const started = await startService(test, made, options);
        for (const [index, [conversationId, agentId, user]] of MADE.entries()) {
          const title = `Title ${MADE.length - index}`;
          const body = { conversationId, agentId, userId: user, title };
          const reply = await started.post("/api/memory/conversations", body, as(user));
          assert.equal(reply.status, 201, await reply.text());
          const messages = [
            { id: `m-${conversationId}`, role: "user", parts: [{ type: "text", text: conversationId }] },
          ];
          const said = { conversationId, agentId, userId: user, messages };
          const saved = await started.post("/api/memory/save-messages", said, as(user));
          assert.equal(saved.status, 200, await saved.text());
        }
        const notes = [
          ["a2", "second", { content: "# Ada likes tea" }],
          ["a3", "third", { content: { likes: "tea" } }],
        ] as const;
        for (const [id, agentId, body] of notes) {
          const path = `/api/memory/conversations/${id}/working-memory`;
          const reply = await started.post(path, { ...body, agentId, userId: "ada" }, as("ada"));
          assert.equal(reply.status, 200, await reply.text());
        }
        return started;
      };
      service = await serve({});
      users = await serve({ consoleRoutes: [] });
    });
    after(async () => {
      for (const end of ends) await end();
    });

    const call = async (path: string, headers: Record<string, string> = CONSOLE, of = service) => {
      const reply = await of.get(`/observability/memory/${path}`, headers);
      const body = (await reply.json()) as Loose;
      return { status: reply.status, code: reply.headers.get("x-error-code"), error: body.error, data: body.data };
    };
    const get = async (schema: keyof typeof validators, path: string, headers = {}, of = service): Promise<Loose> => {
      const { status, data, error } = await call(path, { ...CONSOLE, ...headers }, of);
      assert.equal(status, 200, error);
      const validate = validators[schema] as ((value: unknown) => boolean) & { errors?: unknown };
      assert.ok(validate(data), JSON.stringify(validate.errors));
      return data;
    };
    const idsOf = ({ conversations }: Loose): string[] => conversations.map(({ id }: Loose) => id);

    test("GET /observability/memory/users counts the conversations of each user with each agent, in all memories", async () => {
      const { users: found, ...page } = await get("MemoryUserList", "users");
      assert.deepEqual(page, { total: 2, limit: 50, offset: 0 });
      const counted = Object.fromEntries(
        found.map(({ userId, conversationCount, agents }: Loose) => [
          userId,
          [
            conversationCount,
            agents.map(({ agentId, agentName, conversationCount: n }: Loose) => [agentId, agentName, n]),
          ],
        ]),
      );
      assert.deepEqual(counted, {
        ada: [
          3,
          [
            ["assistant", "Assistant", 1],
            ["second", "Second", 1],
            ["third", "Third", 1],
          ],
        ],
        bob: [
          2,
          [
            ["assistant", "Assistant", 1],
            ["second", "Second", 1],
          ],
        ],
      });
      for (const { lastInteractionAt, agents } of found) {
        const times = agents.map((each: Loose) => each.lastInteractionAt);
        assert.equal(lastInteractionAt, times.sort().at(-1));
      }
      const order = found.map(({ lastInteractionAt }: Loose) => lastInteractionAt);
      assert.deepEqual(order, [...order].sort().reverse());
    });

    test("GET /observability/memory/users takes agentId, search, limit and offset", async () => {
      const named = async (query: string) => {
        const { users: found, total } = await get("MemoryUserList", `users?${query}`);
        return [found.map(({ userId }: Loose) => userId), total];
      };
      assert.deepEqual(await named("agentId=third"), [["ada"], 1]);
      assert.deepEqual(await named("search=AD"), [["ada"], 1]);
      assert.deepEqual(await named("agentId=unknown"), [[], 0]);
      const [[one], all] = await named("limit=1");
      const [[other]] = await named("limit=1&offset=1");
      assert.deepEqual([[one, other].sort(), all], [["ada", "bob"], 2]);
      assert.equal((await call("users?limit=201")).status, 400);
    });

    test("GET /observability/memory/conversations lists those of all agents in one order, each with its agent", async () => {
      const all = await get("AgentConversationList", "conversations?orderBy=created_at&orderDirection=ASC");
      const shown = all.conversations.map(({ id, agentId, agentName, userId }: Loose) => [
        id,
        agentId,
        agentName,
        userId,
      ]);
      const names: Record<string, string> = { assistant: "Assistant", second: "Second", third: "Third" };
      assert.deepEqual(shown.sort(), MADE.map(([id, agentId, user]) => [id, agentId, names[agentId], user]).sort());
      assert.equal(all.total, 5);
      const titles = async (direction: string) =>
        idsOf(await get("AgentConversationList", `conversations?orderBy=title&orderDirection=${direction}`));
      assert.deepEqual(await titles("DESC"), ["a1", "b1", "a2", "a3", "b2"]);
      assert.deepEqual(await titles("ASC"), ["b2", "a3", "a2", "b1", "a1"]);
      const newest = await get("AgentConversationList", "conversations");
      const changed = newest.conversations.map(({ updatedAt }: Loose) => updatedAt);
      assert.deepEqual(changed, [...changed].sort().reverse());
    });

    test("GET /observability/memory/conversations takes agentId, userId, limit and offset in every order", async () => {
      for (const order of ["updated_at", "created_at", "title"]) {
        const list = (query: string) => get("AgentConversationList", `conversations?orderBy=${order}&${query}`);
        const ada = await list("userId=ada");
        assert.deepEqual([idsOf(ada).sort(), ada.total], [["a1", "a2", "a3"], 3]);
        const second = await list("agentId=second");
        assert.deepEqual([idsOf(second).sort(), second.total], [["a2", "b2"], 2]);
        assert.deepEqual(idsOf(await list("agentId=second&userId=bob")), ["b2"]);
        assert.deepEqual(idsOf(await list("agentId=none")), []);
        const pages = [await list("limit=2"), await list("limit=2&offset=2"), await list("limit=2&offset=4")];
        assert.deepEqual(pages.flatMap(idsOf), idsOf(await list("")));
        assert.deepEqual(new Set(pages.map(({ total }) => total)), new Set([5]));
      }
    });

    test("GET /observability/memory/conversations/:conversationId/messages finds the conversation in whatever memory it is", async () => {
      for (const [id, agentId, user] of MADE) {
        const { conversation, messages } = await get("AgentMessageList", `conversations/${id}/messages?userId=${user}`);
        assert.deepEqual([conversation.id, conversation.agentId, conversation.userId], [id, agentId, user]);
        assert.deepEqual(
          messages.map((message: Loose) => message.id),
          [`m-${id}`],
        );
      }
      const none = await get("AgentMessageList", "conversations/a1/messages?userId=ada&roles=assistant");
      assert.deepEqual(none.messages, []);
      for (const path of [
        "conversations/unknown/messages?userId=ada",
        "conversations/a3/messages?userId=ada&agentId=second",
      ]) {
        const { status, code } = await call(path);
        assert.deepEqual([status, code], [404, "not_found"], path);
      }
    });

    test("GET /observability/memory/working-memory gives the note of a conversation or of a user, with its agent", async () => {
      const note = await get("AgentWorkingMemory", "working-memory?scope=conversation&conversationId=a2&userId=ada");
      assert.deepEqual([note.scope, note.content, note.format], ["conversation", "# Ada likes tea", "markdown"]);
      const of = await get("AgentWorkingMemory", "working-memory?scope=user&userId=ada");
      assert.deepEqual([of.agentId, of.agentName, of.scope], ["third", "Third", "user"]);
      assert.deepEqual([JSON.parse(of.content), of.format], [{ likes: "tea" }, "json"]);
      const empty = await get("AgentWorkingMemory", "working-memory?scope=user&userId=bob");
      assert.equal(empty.content, null);
      const nothing = await get("AgentWorkingMemory", "working-memory?scope=user&userId=ada&agentId=none");
      assert.deepEqual([nothing.agentId, nothing.content], [null, null]);
      assert.equal((await call("working-memory?scope=conversation&conversationId=unknown&userId=ada")).status, 404);
      for (const [query, field] of [
        ["", "scope"],
        ["scope=user", "userId"],
        ["scope=conversation", "conversationId"],
      ]) {
        const { status, error } = await call(`working-memory?${query}`);
        assert.equal(status, 400);
        assert.match(error, new RegExp(field!));
      }
    });

    test("/observability/memory: the console sees all users, a user who may ask sees what is theirs, others none", async () => {
      assert.equal((await call("users", {})).status, 401);
      assert.equal((await call("users", as("ada"))).status, 401, "a route of the console");
      const asked = async (path: string) => (await call(path, as("ada"), users)).data;
      const { users: seen, total } = await asked("users");
      assert.deepEqual([seen.map(({ userId }: Loose) => userId), total, seen[0].conversationCount], [["ada"], 1, 3]);
      for (const order of ["updated_at", "title"]) {
        const list = await asked(`conversations?orderBy=${order}`);
        assert.deepEqual([idsOf(list).sort(), list.total], [["a1", "a2", "a3"], 3]);
      }
      assert.equal((await asked("conversations/a1/messages")).messages.length, 1);
      assert.equal((await call("conversations/b1/messages", as("ada"), users)).status, 404);
      assert.equal((await call("conversations?userId=bob", as("ada"), users)).status, 400);
      assert.equal((await call("working-memory?scope=user&userId=bob", as("ada"), users)).status, 400);
      assert.equal((await asked("working-memory?scope=user")).content, '{"likes":"tea"}');
      const other = await call("working-memory?scope=conversation&conversationId=a2", as("bob"), users);
      assert.equal(other.status, 404);
    });
  });
}
