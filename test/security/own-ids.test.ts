/**
 * With `auth.isolation: user` the ids that clients choose belong to their user: two users have conversations and executions of the
 * same ids, over every row of the routes table, and no reply tells whether another user has one.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { LONG, spread } from "../support/at-length.ts";
import type { InjectedReply } from "../support/inject.ts";
import {
  ada,
  bob,
  dataOf,
  developer,
  type Headers,
  lookAt,
  next,
  nobody,
  objectsOf,
  send,
  serve,
  usesUp,
} from "../support/isolated-service.ts";
import { type Objects, OWNING_ROWS, type OwningRequest } from "../support/owning-routes.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import type { Loose } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";
import { token } from "../support/tokens.ts";

const postgres = await sharedPostgres();
const folder = mkdtempSync(join(tmpdir(), "penstock-own-ids-"));
after(async () => {
  await postgres?.close();
  rmSync(folder, { recursive: true, force: true });
});

const STORES: Record<string, (() => Promise<string>) | null> = {
  memory: async () => "memory:",
  sqlite: async () => `sqlite:${join(folder, `${next()}.db`)}`,
  postgres: postgres && (() => postgres.createDatabase()),
};

/** A user whom nobody else is. */
const stranger = (): Headers => ({ authorization: `Bearer ${token({ sub: `stranger-${next()}` })}` });

/** What a reply says, beside what names it alone. */
function shown(reply: InjectedReply, ids: readonly string[]): object {
  const {
    "x-request-id": _id,
    date: _date,
    "content-length": _length,
    "x-run-id": _run,
    "x-execution-id": named,
    ...headers
  } = reply.headers;
  // In one pass: a short id of the test may stand within one that was made.
  const known = ids.map((id) => id.replaceAll(/[^\w]/g, "\\$&"));
  const made = String.raw`[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,32}|\b[0-9a-z]{9}-[0-9a-f]{16}\b`;
  const text = reply
    .text()
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME")
    .replaceAll(new RegExp([...known.filter((id) => id.length > 8), made, ...known].join("|"), "g"), (found) =>
      ids.includes(found) ? `ID-${ids.indexOf(found)}` : "MADE",
    )
    .replaceAll(/stranger-\d+/g, "USER");
  return { status: reply.status, headers, named: named && "ID", text };
}

const idsOf = ({ conversation, waiting, completed, message }: Objects) => [conversation, waiting, completed, message];
const pickIds = ({ conversation, waiting, completed, message }: Objects) => ({
  conversation,
  waiting,
  completed,
  message,
});
const pathOf = ({ conversation }: Objects) => `/api/memory/conversations/${conversation}`;

/** Every way to choose an id. */
const CHOOSING: Record<string, (id: string) => [operation: string, request: OwningRequest]> = {
  "memory.createConversation with conversationId": (conversationId) => [
    "memory.createConversation",
    { path: "/api/memory/conversations", body: { conversationId } },
  ],
  "workflows.execute with options.executionId": (executionId) => [
    "workflows.execute",
    { path: "/workflows/flow/execute", body: { input: 1, options: { executionId } } },
  ],
  "workflows.stream with options.executionId": (executionId) => [
    "workflows.stream",
    { path: "/workflows/flow/stream", body: { input: 1, options: { executionId } } },
  ],
  "agents.generateText with options.memory.conversationId": (conversationId) => [
    "agents.generateText",
    { path: "/agents/assistant/text", body: { input: "x", options: { memory: { conversationId } } } },
  ],
  "agents.chat with id": (id) => [
    "agents.chat",
    {
      path: "/agents/assistant/chat",
      body: { id, messages: [{ role: "user", parts: [{ type: "text", text: "x" }] }] },
    },
  ],
  "a2a.call with contextId": (contextId) => [
    "a2a.call",
    {
      path: "/a2a/assistant",
      body: {
        jsonrpc: "2.0",
        id: 1,
        method: "SendMessage",
        params: { message: { messageId: "x", role: "ROLE_USER", parts: [{ text: "x" }], contextId } },
      },
    },
  ],
  "mcp.invokeTool with conversationId": (conversationId) => [
    "mcp.invokeTool",
    { path: "/mcp/servers/main/tools/agent_assistant", body: { arguments: { prompt: "x", conversationId } } },
  ],
  "mcp.invokeTool with executionId": (executionId) => [
    "mcp.invokeTool",
    { path: "/mcp/servers/main/tools/workflow_asking", body: { arguments: { input: 1, options: { executionId } } } },
  ],
};

/** Every row over the stores in the process; over PostgreSQL, which takes longest, every third, and all at length. */
const rowsOver = (kind: string): [string, (typeof OWNING_ROWS)[string]][] => {
  const all = Object.entries(OWNING_ROWS);
  return kind === "postgres" && !LONG ? spread(all, all.length / 3) : all;
};

for (const [kind, open] of Object.entries(STORES)) {
  describe(`ids of users over ${kind}`, { skip: open === null ? NO_POSTGRES : false }, () => {
    const over: (() => unknown)[] = [];
    let service: TestService;
    before(async () => {
      service = await serve({ after: (work) => void over.push(work as () => unknown) }, await open!());
    });
    after(async () => {
      for (const work of over) await work();
    });
    const twins = async () => {
      const name = next();
      return [await objectsOf(service, ada, {}, name), await objectsOf(service, bob, {}, name)] as const;
    };
    let kept: ReturnType<typeof twins> | undefined;
    /** Those that no test uses up. */
    const keptTwins = () => {
      kept ??= twins();
      return kept;
    };

    for (const [operation, row] of rowsOver(kind)) {
      if (row.kind === "free") continue;
      test(`${operation}: two users with objects of the same ids each reach their own`, async () => {
        const [hers, his] = await (usesUp(operation) ? twins() : keptTwins());
        const known = await lookAt(service, bob, his);
        const reply = await send(service, operation, ada, row.request(hers));
        const status = "status" in row ? row.status : undefined;
        assert.equal(reply.status, status ?? 200, reply.text());
        assert.doesNotMatch(reply.text(), /"bob"/);
        assert.deepEqual(await lookAt(service, bob, his), known);
        const other = await send(service, operation, bob, row.request(his));
        assert.equal(other.status, status ?? 200, other.text());
        assert.doesNotMatch(other.text(), /"ada"/);
      });

      if (row.kind === "list") continue;
      test(`${operation}: the reply is the same whether or not another user has the ids`, async () => {
        const [hers] = await keptTwins();
        const free = { ...hers, conversation: `c-${next()}`, waiting: `w-${next()}`, completed: `f-${next()}` };
        const gone = { trace: "0".repeat(32), span: "0".repeat(16) };
        const replies = [];
        for (const of of [hers, free]) {
          const reply = await send(service, operation, stranger(), row.request({ ...of, ...gone }));
          replies.push(shown(reply, idsOf(of)));
        }
        assert.deepEqual(replies[0], replies[1]);
      });
    }

    for (const [how, choose] of Object.entries(CHOOSING)) {
      test(`${how}: an id that another user has is as free as one that nobody has`, async () => {
        const [taken, free] = [`t-${next()}`, `t-${next()}`];
        const first = await send(service, choose(taken)[0], ada, choose(taken)[1]);
        assert.ok(first.status < 300, first.text());
        const replies = [];
        for (const id of [taken, free]) {
          const [operation, request] = choose(id);
          const who = stranger();
          const reply = await send(service, operation, who, request);
          assert.ok(reply.status < 300, reply.text());
          replies.push(shown(reply, [id]));
        }
        assert.deepEqual(replies[0], replies[1]);
      });
    }

    test("memory.cloneConversation with newConversationId: a copy may have the id of another user's conversation, and not that of an own one", async () => {
      const [hers, his] = await twins();
      const [mine] = [await objectsOf(service, ada)];
      const known = await lookAt(service, bob, his);
      const only = await objectsOf(service, bob);
      const clone = (headers: Headers, newConversationId: string) =>
        send(service, "memory.cloneConversation", headers, {
          path: `${pathOf(hers)}/clone`,
          body: { newConversationId },
        });
      const copy = await clone(ada, only.conversation);
      assert.equal(copy.status, 201, copy.text());
      assert.equal(dataOf(copy).conversation.userId, "ada");
      assert.equal((await clone(ada, mine.conversation)).status, 409);
      assert.equal((await clone(ada, hers.conversation)).status, 409);
      assert.deepEqual(await lookAt(service, bob, his), known);
    });

    for (const how of Object.keys(CHOOSING).slice(0, 3)) {
      test(`${how}: of two users at once both succeed; of one user twice at once, one does`, async () => {
        const race = async (who: Headers[], id: string) => {
          const [operation, request] = CHOOSING[how]!(id);
          const replies = await Promise.all(who.map((headers) => send(service, operation, headers, request)));
          return replies.map(({ status }) => (status === 409 ? "conflict" : status < 300 ? "made" : status)).sort();
        };
        for (let round = 0; round < 5; round++) {
          assert.deepEqual(await race([ada, bob], `r-${next()}`), ["made", "made"]);
          assert.deepEqual(await race([ada, ada, ada], `r-${next()}`), ["conflict", "conflict", "made"]);
        }
      });
    }

    test("memory.deleteConversation: frees the id for its owner alone", async () => {
      const [hers, his] = await twins();
      const known = await lookAt(service, bob, his);
      const path = pathOf(hers);
      assert.equal((await send(service, "memory.deleteConversation", ada, { path })).status, 200);
      assert.equal((await send(service, "memory.getConversation", ada, { path })).status, 404);
      const create: OwningRequest = {
        path: "/api/memory/conversations",
        body: { conversationId: hers.conversation, title: "again" },
      };
      assert.equal((await send(service, "memory.createConversation", bob, create)).status, 409);
      assert.equal((await send(service, "memory.createConversation", ada, create)).status, 201);
      assert.equal(dataOf(await send(service, "memory.getConversation", ada, { path })).conversation.title, "again");
      assert.deepEqual(await lookAt(service, bob, his), known);
    });

    test("memory.saveMessages: the same ids of conversations and of messages are two users' own", async () => {
      const [hers, his] = await twins();
      const save = async (headers: Headers, of: Objects, text: string) => {
        const messages = [{ id: of.message, role: "user", content: text }];
        const body = { conversationId: of.conversation, messages };
        dataOf(await send(service, "memory.saveMessages", headers, { path: "/api/memory/save-messages", body }));
      };
      await save(ada, hers, "from ada");
      await save(bob, his, "from bob");
      for (const [headers, of, text] of [[ada, hers, "from ada"] as const, [bob, his, "from bob"] as const]) {
        const page = dataOf(await send(service, "memory.listMessages", headers, { path: `${pathOf(of)}/messages` }));
        const found = page.messages.filter(({ id }: Loose) => id === of.message);
        assert.deepEqual(
          found.map(({ content }: Loose) => content),
          [text],
        );
      }
    });

    // They start services one after the other on one store.
    if (kind === "memory") return;

    test("who comes without a token has ids of its own beside those of users", async (t) => {
      const [store, name] = [await open!(), next()];
      const first = await serve(t, store);
      const hers = await objectsOf(first, ada, {}, name);
      const known = await lookAt(first, ada, hers);
      await first.stop();
      const second = await serve(t, store, { publicRoutes: ["/**"] });
      await lookAt(second, nobody, await objectsOf(second, nobody, {}, name));
      await second.stop();
      const third = await serve(t, store);
      assert.deepEqual(await lookAt(third, ada, hers), known);
      const whose = async (userId: string) => {
        const path = `${pathOf(hers)}?userId=${userId}`;
        return dataOf(await send(third, "memory.getConversation", developer, { path })).conversation.userId;
      };
      assert.deepEqual([await whose(""), await whose("ada")], ["", "ada"]);
      await third.stop();
    });

    test("what was made before isolation was switched on stays its owner's, and blocks nobody else's ids; after it was switched off all is found", async (t) => {
      const [store, name] = [await open!(), next()];
      const before = await serve(t, store, { isolation: "none" });
      const hers = await objectsOf(before, ada, { userId: "ada" }, name);
      const known = await lookAt(before, ada, hers);
      await before.stop();

      const isolated = await serve(t, store);
      const of = { ...hers, ...(await objectsOf(isolated, ada)), ...pickIds(hers) };
      assert.deepEqual((await lookAt(isolated, ada, of)).slice(0, 5), known.slice(0, 5));
      for (const how of [
        "memory.createConversation with conversationId",
        "workflows.execute with options.executionId",
      ]) {
        const [operation, request] = CHOOSING[how]!(how.startsWith("memory") ? hers.conversation : hers.completed);
        assert.equal((await send(isolated, operation, ada, request)).status, 409, how);
      }
      const his = await objectsOf(isolated, bob, {}, name);
      const only = await objectsOf(isolated, bob);
      const knownOfBob = await lookAt(isolated, bob, his);
      assert.deepEqual((await lookAt(isolated, ada, of)).slice(0, 5), known.slice(0, 5));
      assert.equal((await send(isolated, "memory.getConversation", stranger(), { path: pathOf(hers) })).status, 404);
      const messages = {
        path: "/api/memory/save-messages",
        body: { conversationId: hers.conversation, messages: [{ role: "user", content: "more" }] },
      };
      dataOf(await send(isolated, "memory.saveMessages", ada, messages));
      assert.deepEqual(await lookAt(isolated, bob, his), knownOfBob);
      await isolated.stop();

      const after = await serve(t, store, { isolation: "none" });
      assert.deepEqual((await lookAt(after, ada, { ...only, trace: his.trace, span: his.span })).length, 8);
      const several = await send(after, "memory.getConversation", ada, { path: pathOf(hers) });
      assert.equal(several.status, 400, several.text());
      const bobs = await send(after, "memory.getConversation", ada, { path: `${pathOf(hers)}?userId=bob` });
      assert.equal(dataOf(bobs).conversation.userId, "bob");
      for (const [how, id] of [
        ["memory.createConversation with conversationId", only.conversation],
        ["workflows.execute with options.executionId", only.completed],
      ] as const) {
        const [operation, request] = CHOOSING[how]!(id);
        assert.equal((await send(after, operation, ada, request)).status, 409, how);
      }
      const text = {
        path: "/agents/assistant/text",
        body: { input: "x", options: { memory: { conversationId: only.conversation, userId: "ada" } } },
      };
      assert.equal((await send(after, "agents.generateText", ada, text)).status, 404);
      await after.stop();
    });

    test("who sees everything says whose of several objects with one id is meant, and is told so with a 400 where it does not", async () => {
      const [hers, his] = await twins();
      const alone = await objectsOf(service, ada);
      const state = (of: Objects, query: string) =>
        send(service, "workflows.getState", developer, {
          path: `/workflows/flow/executions/${of.completed}/state${query}`,
        });
      const get = (of: Objects, query: string) =>
        send(service, "memory.getConversation", developer, { path: `${pathOf(of)}${query}` });
      for (const ask of [state, get]) {
        const several = await ask(hers, "");
        assert.equal(several.status, 400, several.text());
        assert.match(several.text(), /several users have an? (conversation|execution) .*: say whose with userId/);
        assert.match((await ask(hers, "?userId=ada")).text(), /"userId":"ada"/);
        assert.match((await ask(his, "?userId=bob")).text(), /"userId":"bob"/);
        assert.equal((await ask(his, "?userId=carol")).status, 404);
        assert.equal((await ask(his, "?userId=")).status, 404);
        assert.equal((await ask(alone, "")).status, 200);
        assert.equal((await ask({ ...alone, conversation: "gone", completed: "gone" }, "")).status, 404);
      }
      const list = dataOf(
        await send(service, "workflows.listExecutions", developer, { path: "/workflows/executions?limit=500" }),
      );
      const owners = list.filter(({ id }: Loose) => id === hers.completed).map(({ userId }: Loose) => userId);
      assert.deepEqual(owners.sort(), ["ada", "bob"]);
    });

    for (const [operation, row] of rowsOver(kind)) {
      if (row.kind !== "object" || !/^(memory|workflows)\./.test(operation)) continue;
      test(`${operation}: who sees everything reaches one of two objects with the same id by userId, and the other stays as it is`, async () => {
        const [hers, his] = await (usesUp(operation) ? twins() : keptTwins());
        const known = await lookAt(service, bob, his);
        const request: OwningRequest = row.request(hers);
        const inBody = /saveMessages|deleteMessages|updateWorkingMemory/.test(operation);
        const unsaid = await send(service, operation, developer, request);
        assert.equal(unsaid.status, 400, unsaid.text());
        assert.deepEqual(await lookAt(service, bob, his), known);
        const said = inBody
          ? { ...request, body: { ...request.body, userId: "ada" } }
          : { ...request, path: `${request.path}?userId=ada` };
        const reply = await send(service, operation, developer, said);
        assert.equal(reply.status, row.status ?? 200, reply.text());
        assert.deepEqual(await lookAt(service, bob, his), known);
      });
    }

    test("memory.createConversation: who sees everything makes a conversation in the space of its owner", async () => {
      const conversationId = `d-${next()}`;
      const create = (userId: string) =>
        send(service, "memory.createConversation", developer, {
          path: "/api/memory/conversations",
          body: { conversationId, userId },
        });
      assert.equal((await create("ada")).status, 201);
      assert.equal((await create("bob")).status, 201);
      assert.equal((await create("ada")).status, 409);
      const path = `/api/memory/conversations/${conversationId}`;
      assert.equal(dataOf(await send(service, "memory.getConversation", bob, { path })).conversation.userId, "bob");
    });
  });
}
