/**
 * Two users, nobody and the console over every row of the routes table: what belongs to one does not exist for the others,
 * whatever they say about themselves (contract, "Authentication"; stored objects belong to the user of the token).
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { ROUTES } from "../../core/api/routes/index.ts";
import { type InjectedReply, inject } from "../support/inject.ts";
import {
  ada,
  bob,
  console_,
  dataOf,
  developer,
  type Headers,
  leaveChat,
  lookAt,
  next,
  nobody,
  objectsOf,
  send,
  serve,
  usesUp,
} from "../support/isolated-service.ts";
import { aliasesOf, naming, type Objects, OWNING_ROWS, type OwningRequest } from "../support/owning-routes.ts";
import type { Loose } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";
import { token } from "../support/tokens.ts";

test("every row of the routes table says whose objects it is about", () => {
  assert.deepEqual(Object.keys(OWNING_ROWS).sort(), ROUTES.map(({ operation }) => operation).sort());
});

for (const kind of ["memory", "sqlite"]) {
  describe(`auth.isolation: user over ${kind}`, () => {
    const folder = mkdtempSync(join(tmpdir(), "penstock-isolation-"));
    const store = kind === "memory" ? "memory:" : `sqlite:${join(folder, "own.db")}`;
    const over: (() => unknown)[] = [];
    let service: TestService;
    before(async () => {
      service = await serve({ after: (work) => void over.push(work as () => unknown) }, store);
    });
    after(async () => {
      for (const work of over) await work();
      rmSync(folder, { recursive: true, force: true });
    });

    const kept = new Map<Headers, Promise<Objects>>();
    /** Those of a user that no test uses up, and that nobody else gets the ids of. */
    const keptOf = (headers: Headers): Promise<Objects> => {
      const of = kept.get(headers) ?? objectsOf(service, headers);
      kept.set(headers, of);
      return of;
    };

    // First, while what is kept is on the first page of each.
    for (const [operation, row] of Object.entries(OWNING_ROWS)) {
      if (row.kind !== "list") continue;
      test(`${operation}: shows the caller's own, all of it, and nothing else; the developer sees everybody's`, async () => {
        const [hers, his] = [await keptOf(ada), await keptOf(bob)];
        const ids = async (headers: Headers, of: Objects) =>
          row.ids(dataOf(await send(service, operation, headers, row.request(of))), of);
        const [seenByHer, seenByHim] = [await ids(ada, hers), await ids(bob, his)];
        for (const id of row.owned(hers)) assert.ok(seenByHer.includes(id) && !seenByHim.includes(id), id);
        for (const id of row.owned(his)) assert.ok(seenByHim.includes(id) && !seenByHer.includes(id), id);
        for (const of of [hers, his]) {
          const seen = await ids(developer, of);
          for (const id of row.owned(of)) assert.ok(seen.includes(id), id);
        }
      });
    }

    for (const [operation, row] of Object.entries(OWNING_ROWS)) {
      const madeFor = (headers: Headers) => (usesUp(operation) ? objectsOf(service, headers) : keptOf(headers));
      if (row.kind === "object") {
        test(`${operation}: an object of another user is 404 and stays as it is; its owner, and the developer, reach it`, async () => {
          const of = await madeFor(ada);
          const known = await lookAt(service, ada, of);
          const refused = await send(service, operation, bob, row.request(of));
          assert.equal(refused.status, 404, refused.text());
          const missing = await send(service, operation, bob, row.request({ ...of, ...GONE }));
          assert.equal(
            refused.text(),
            missing.text().replaceAll("c-gone", of.conversation).replaceAll("x-gone", idIn(refused, of)),
          );
          assert.deepEqual(await lookAt(service, ada, of), known);
          const own = await send(service, operation, ada, row.request(of));
          assert.equal(own.status, row.status ?? 200, own.text());
          const again = await madeFor(ada);
          const { path, body } = row.request(again);
          const needsUser = operation === "memory.saveMessages" || operation === "memory.deleteMessages";
          const named = needsUser ? { ...body, userId: "ada" } : body;
          const free = await send(service, operation, developer, { path, body: named });
          assert.equal(free.status, row.status ?? 200, free.text());
        });
      }

      if (row.kind === "maker") {
        test(`${operation}: what comes of it is the caller's`, async () => {
          const of = await objectsOf(service, ada);
          const known = await lookAt(service, ada, of);
          const foreign = await send(service, operation, bob, row.request(of));
          assert.equal(foreign.status, row.status ?? 200, foreign.text());
          assert.deepEqual(await lookAt(service, ada, of), known);
          const own = await send(service, operation, ada, row.request(of));
          assert.equal(own.status, row.status ?? 200, own.text());
        });
      }

      if (row.kind === "chat") {
        test(`${operation}: what answers another user does not exist, also not where both have a conversation of the same id`, async () => {
          const of = { conversation: `c-${next()}` };
          const { path, body } = row.request(of);
          await leaveChat(service, ada, of.conversation);
          const refused = await send(service, operation, bob, row.request(of));
          assert.equal(refused.status, row.status, refused.text());
          const missing = await send(service, operation, bob, row.request({ conversation: "c-gone" }));
          assert.equal(refused.text(), missing.text().replaceAll("c-gone", of.conversation));
          for (const headers of [ada, bob]) {
            const other = headers === ada ? "bob" : "ada";
            const named = body === undefined ? { path: `${path}?userId=${other}` } : { path, body: { userId: other } };
            const wrong = await send(service, operation, headers, named);
            assert.equal(wrong.status, 400, wrong.text());
            assert.match(wrong.text(), /userId must be the user of the token/);
          }
          await leaveChat(service, bob, of.conversation);
          const cancel = { path: `/agents/talker/chat/${of.conversation}/cancel`, body: {} };
          const isHis = await send(service, "runs.cancelChat", bob, cancel);
          assert.equal(isHis.status, 200, isHis.text());
          // Hers goes on.
          const nobodys = await send(service, operation, developer, row.request(of));
          // A chat hook asks without a user, and before anything runs; whoever cancels has to say whose.
          assert.equal(nobodys.status, operation === "runs.attachChat" ? 204 : 400, nobodys.text());
          if (operation === "runs.attachChat") {
            const client = new AbortController();
            let seen = "";
            const onChunk = (chunk: Buffer) => {
              seen += chunk;
              if (seen.includes("text-delta")) client.abort();
            };
            const reading = { path, headers: ada, onChunk, signal: client.signal };
            await assert.rejects(inject(service.dispatch, reading), /abort/, seen);
          }
          const free = await send(service, "runs.cancelChat", developer, { ...cancel, body: { userId: "ada" } });
          assert.equal(free.status, 200, free.text());
          assert.equal((await send(service, operation, ada, row.request(of))).status, row.status);
        });
        continue;
      }

      if (row.kind === "free") continue;
      const aliases = aliasesOf(operation);
      if (aliases.query) {
        test(`${operation}: userId in the query must be the token's user`, async () => {
          const of = await madeFor(ada);
          const request = row.request(of);
          const { path } = request;
          const asking = (userId: string) => `${path}${path.includes("?") ? "&" : "?"}userId=${userId}`;
          const wrong = await send(service, operation, ada, { ...request, path: asking("bob") });
          assert.equal(wrong.status, 400, wrong.text());
          assert.match(wrong.text(), /userId must be the user of the token/);
          const right = await send(service, operation, ada, { ...request, path: asking("ada") });
          const status = "status" in row ? row.status : undefined;
          assert.equal(right.status, status ?? 200, right.text());
        });
      }
      for (const path of aliases.body) {
        test(`${operation}: ${path.join(".")} in the body must be the token's user`, async () => {
          const of = await madeFor(ada);
          const request = row.request(of);
          const body = request.body ?? {};
          const wrong = await send(service, operation, ada, { ...request, body: naming(body, path, "bob") });
          assert.equal(wrong.status, 400, wrong.text());
          assert.match(wrong.text(), /userId must be the (user of the token|owner of the conversation)/);
          const right = await send(service, operation, ada, { ...request, body: naming(body, path, "ada") });
          assert.ok(right.status < 300, right.text());
        });
      }
    }

    test("what is made belongs to the user of the token, though nobody said so", async () => {
      const created = await send(service, "memory.createConversation", bob, {
        path: "/api/memory/conversations",
        body: {},
      });
      const { conversation } = dataOf(created);
      assert.equal(conversation.userId, "bob");
      const got = { path: `/api/memory/conversations/${conversation.id}` };
      assert.equal((await send(service, "memory.getConversation", ada, got)).status, 404);
      const body = { input: "x", options: { memory: { conversationId: `made-${next()}` } } };
      dataOf(await send(service, "agents.generateText", bob, { path: "/agents/assistant/text", body }));
      const made = { path: `/api/memory/conversations/${body.options.memory.conversationId}` };
      assert.equal(dataOf(await send(service, "memory.getConversation", bob, made)).conversation.userId, "bob");
      for (const operation of ["execute", "stream"]) {
        const executionId = `made-${next()}`;
        const begin = { path: `/workflows/flow/${operation}`, body: { input: 1, options: { executionId } } };
        assert.equal((await send(service, `workflows.${operation}`, bob, begin)).status, 200);
        const state = { path: `/workflows/flow/executions/${executionId}/state` };
        assert.equal(dataOf(await send(service, "workflows.getState", bob, state)).userId, "bob");
        assert.equal((await send(service, "workflows.getState", ada, state)).status, 404);
      }
    });

    test("an alias that another one goes before must be the token's user too", async () => {
      const of = await objectsOf(service, ada);
      const memory = { conversationId: of.conversation, userId: "ada" };
      const text = { path: "/agents/assistant/text", body: { input: "x", options: { userId: "bob", memory } } };
      assert.equal((await send(service, "agents.generateText", ada, text)).status, 400);
      const messages = [{ role: "user", content: "x", userId: "ada" }];
      const body = { userId: "bob", conversationId: of.conversation, messages };
      const saved = await send(service, "memory.saveMessages", ada, { path: "/api/memory/save-messages", body });
      assert.equal(saved.status, 400);
    });

    test("identity is the token's without a conversation and without memory too: the history and the trace say who asked", async () => {
      const alone = { authorization: `Bearer ${token({ sub: "carol" })}` };
      const text = { path: "/agents/assistant/text", body: { input: "alone" } };
      dataOf(await send(service, "agents.generateText", alone, text));
      const request: OwningRequest = { path: "/agents/assistant/history" };
      const { entries, total } = dataOf(await send(service, "agents.history", alone, request));
      assert.deepEqual([total, entries.length, entries[0].userId, entries[0].input], [1, 1, "carol", "alone"]);
      const path = "/observability/traces";
      const { traces } = dataOf(await send(service, "observability.listTraces", alone, { path }));
      assert.deepEqual([traces.length, traces[0]?.rootSpan.attributes["entity.id"]], [1, "assistant"]);
      const other = { authorization: `Bearer ${token({ sub: "dave" })}` };
      assert.deepEqual(dataOf(await send(service, "observability.listTraces", other, { path })).traces, []);
      const trace = { path: `${path}/${traces[0].traceId}` };
      assert.equal(dataOf(await send(service, "observability.getTrace", alone, trace)).spanCount, traces[0].spanCount);
      assert.equal((await send(service, "observability.getTrace", other, trace)).status, 404);
      const refused = await send(service, "agents.generateText", alone, {
        ...text,
        body: { input: "x", options: { memory: { userId: "ada" } } },
      });
      assert.equal(refused.status, 400);
      assert.equal(dataOf(await send(service, "agents.history", alone, request)).total, 1);
    });

    test("a step that asks an agent does it for the user of the execution: another's conversation of the same id is not touched", async () => {
      const of = await objectsOf(service, ada);
      const begin = (headers: Headers, options: object) =>
        send(service, "workflows.execute", headers, {
          path: "/workflows/writing/execute",
          body: { input: 1, options },
        });
      const { conversation: conversationId } = of;
      const before = await lookAt(service, ada, of);
      assert.equal((await begin(bob, { conversationId })).status, 200);
      const his = { path: `/api/memory/conversations/${conversationId}` };
      assert.equal(dataOf(await send(service, "memory.getConversation", bob, his)).conversation.userId, "bob");
      assert.deepEqual(await lookAt(service, ada, of), before);
      assert.equal((await begin(ada, { conversationId })).status, 200);
      assert.equal((await begin(developer, { conversationId, userId: "ada" })).status, 200);
    });

    test("an execution that the console resumes or replays stays its owner's", async () => {
      const of = await objectsOf(service, ada);
      const path = `/workflows/asking/executions/${of.waiting}/resume`;
      assert.equal((await send(service, "workflows.resume", developer, { path, body: {} })).status, 200);
      const again = { path: `/workflows/flow/executions/${of.completed}/replay`, body: { stepId: "one" } };
      const { executionId } = dataOf(await send(service, "workflows.replay", developer, again));
      const state = { path: `/workflows/flow/executions/${executionId}/state` };
      assert.equal(dataOf(await send(service, "workflows.getState", ada, state)).userId, "ada");
      assert.equal((await send(service, "workflows.getState", bob, state)).status, 404);
    });

    test("a token that names no user has nothing, and is told so", async () => {
      const nameless = { authorization: `Bearer ${token({ email: "ada@example.com" })}` };
      const reply = await send(service, "memory.listConversations", nameless, { path: "/api/memory/conversations" });
      assert.equal(reply.status, 401);
      assert.match(reply.text(), /names no user/);
      assert.ok(reply.headers["www-authenticate"]);
    });
  });
}

const X_GONE = "x-gone";
const GONE = {
  conversation: "c-gone",
  waiting: X_GONE,
  completed: X_GONE,
  run: X_GONE,
  trace: X_GONE,
  span: X_GONE,
  response: X_GONE,
};
const idIn = (reply: InjectedReply, { waiting, completed, run, trace, span, response }: Objects) =>
  [waiting, run, trace, span, response].find((id) => reply.text().includes(id)) ?? completed;

test("auth.isolation: nobody, on public routes, has what belongs to nobody; the console sees everything: one store, three services", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "penstock-isolation-"));
  const store = `sqlite:${join(folder, "shared.db")}`;
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const first = await serve(t, store);
  const [hers, others] = [await objectsOf(first, ada), await objectsOf(first, ada)];
  await first.stop();

  const open = await serve(t, store, { publicRoutes: ["/**"] });
  const nobodys = await objectsOf(open, nobody);
  await lookAt(open, nobody, nobodys);
  // A public route looks at no credentials: a token changes nothing.
  for (const headers of [nobody, ada]) {
    for (const [operation, row] of Object.entries(OWNING_ROWS)) {
      if (row.kind === "free") continue;
      // What they make has an id that another has: nobody has one of the same id then.
      const reply = await send(open, operation, headers, row.request(row.kind === "maker" ? others : hers));
      if (row.kind === "list") {
        const seen = row.ids(dataOf(reply), hers);
        for (const id of row.owned(hers)) assert.ok(!seen.includes(id), `${operation} shows ${id}`);
        for (const id of row.owned(nobodys)) assert.ok(seen.includes(id), `${operation} hides ${id}`);
      } else if (row.kind === "object") assert.equal(reply.status, 404, `${operation}: ${reply.text()}`);
      else assert.equal(reply.status, row.status ?? 200, `${operation}: ${reply.text()}`);
      for (const path of aliasesOf(operation).body) {
        const request: OwningRequest = row.request(nobodys);
        const body = naming(request.body ?? {}, path, "ada");
        assert.equal((await send(open, operation, headers, { ...request, body })).status, 400, operation);
      }
    }
  }
  const body = { input: 1, options: { conversationId: "written-by-nobody" } };
  dataOf(await send(open, "workflows.execute", nobody, { path: "/workflows/writing/execute", body }));
  dataOf(await inject(open.dispatch, { path: "/api/memory/conversations/written-by-nobody" }));
  await open.stop();

  const console = await serve(t, store, { consoleRoutes: ["/**"] });
  await lookAt(console, console_, hers);
  await lookAt(console, console_, nobodys);
  const list = await inject(console.dispatch, { path: "/workflows/executions?limit=500", headers: console_ });
  const ids = dataOf(list).map(({ id }: Loose) => id);
  for (const id of [hers.waiting, hers.completed, nobodys.waiting]) assert.ok(ids.includes(id), id);
  const filtered = await inject(console.dispatch, { path: "/workflows/executions?userId=ada", headers: console_ });
  assert.ok(dataOf(filtered).every(({ userId }: Loose) => userId === "ada"));
  const history = await inject(console.dispatch, { path: "/agents/assistant/history?limit=100", headers: console_ });
  const owners = new Set(dataOf(history).entries.map(({ userId }: Loose) => userId));
  assert.ok(owners.has("ada") && owners.has(undefined));
});

test("auth.isolation: none lets every user of a token see and name everybody", async (t) => {
  const service = await serve(t, "memory:", { isolation: "none" });
  const hers = await objectsOf(service, ada);
  await lookAt(service, bob, hers);
  const path = "/api/memory/conversations?userId=ada";
  const { conversations } = dataOf(await inject(service.dispatch, { path, headers: bob }));
  assert.equal(conversations[0].id, hers.conversation);
});
