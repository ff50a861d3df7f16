/** `server.limits.stored`: what one user may make the service keep, counted in the commit that stores or removes it. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, type TestContext, test } from "node:test";
import { allRows } from "../../core/storage/ranges.ts";
import { AUTH, as } from "../support/approvals.ts";
import { PENSTOCK, serve as start } from "../support/command-line.ts";
import { eventually } from "../support/event-reader.ts";
import { STORES } from "../support/memory-stores.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { rewrite } from "../support/reload.ts";
import { startService, type TestService } from "../support/service.ts";

// biome-ignore lint/suspicious/noExplicitAny: replies of many shapes
type Loose = any;

const folder = mkdtempSync(join(tmpdir(), "penstock-stored-"));
after(() => rmSync(folder, { recursive: true, force: true }));
let files = 0;
const file = () => `sqlite:${join(folder, `${files++}.db`)}`;

const KIB = 1024;
const [ada, bob] = [as("ada"), as("bob")];
const DEV = { "x-service-dev": "true" };

const MANIFEST = {
  name: "Stored",
  version: "1.0.0",
  auth: AUTH,
  providers: { demo: { use: "scripted", replies: [{ text: "Yes." }] } },
  agents: {
    assistant: { instructions: "Say yes.", model: "demo/echo", memory: "default" },
    noter: { instructions: "Say yes.", model: "demo/echo", memory: "notes" },
    keeper: { instructions: "Say yes.", model: "demo/echo", durable: true, memory: false },
  },
  memory: {
    default: { workingMemory: { scope: "conversation" } },
    notes: { workingMemory: { scope: "user" } },
  },
  workflows: {
    keep: { steps: [{ id: "only", andThen: { set: { done: true } } }] },
    ask: {
      steps: [
        { id: "ask", andThen: { suspend: { reason: "?" } } },
        { id: "last", andThen: { set: { done: true } } },
      ],
    },
    grow: {
      steps: Array.from({ length: 20 }, (_, n) => ({ id: `s${n}`, andThen: { set: { n, text: "{{ input.text }}" } } })),
    },
  },
};

const manifest = (store: string, stored?: number | string) => ({
  ...MANIFEST,
  store,
  server: { limits: stored === undefined ? {} : { stored } },
});
const serve = (t: Pick<TestContext, "after">, store: string, stored?: number | string): Promise<TestService> =>
  startService(t, manifest(store, stored));

async function ok(reply: Promise<Response>): Promise<Loose> {
  const answer = await reply;
  const body = (await answer.json()) as Loose;
  assert.ok(answer.ok, JSON.stringify(body).slice(0, 500));
  return body.data;
}

/** Has an effect, so that what came before it is on disk. Its outputs differ, since equal ones are stored once. */
const BIG = `let calls = 0;
  export default { kind: "tool", parameters: { type: "object" }, execute: () => ({ text: String(++calls).repeat(3000) }) };`;

const text = (bytes: number) => "x".repeat(bytes);
const said = (bytes: number, id?: string) => ({ id, role: "user", parts: [{ type: "text", text: text(bytes) }] });
const create = (to: TestService, conversationId: string, headers = ada, more: object = {}) =>
  to.post("/api/memory/conversations", { conversationId, agentId: "assistant", ...more }, headers);
const save = (to: TestService, conversationId: string, messages: object[], headers = ada) =>
  to.post("/api/memory/save-messages", { agentId: "assistant", conversationId, messages }, headers);
const execute = (to: TestService, workflow: string, options: object, bytes = 10, headers = ada) =>
  to.post(`/workflows/${workflow}/execute`, { input: { text: text(bytes) }, options }, headers);
const remove = (to: TestService, path: string, headers = ada) => fetch(to.url + path, { method: "DELETE", headers });

/** The counters of all users, and what their rows take: both must be equal, where only they have stored anything. */
async function counted(service: TestService): Promise<{ counters: number; rows: number }> {
  const sum = { counters: 0, rows: 0 };
  for (const prefix of ["b/", "c/", "x/", "xo/", "w/"])
    for await (const rows of allRows(service.service.store, { prefix }))
      for (const { key, value } of rows) {
        if (prefix === "b/") sum.counters += Number(value);
        else if (!key.endsWith("/b")) sum.rows += key.length + Buffer.byteLength(value);
      }
  return sum;
}

async function isExact(service: TestService, after: string): Promise<number> {
  let last = await counted(service);
  await eventually(
    async () => {
      last = await counted(service);
      return last.counters === last.rows;
    },
    `after ${after}: ${JSON.stringify(last)}`,
  );
  return last.rows;
}

async function isTooLarge(reply: Promise<Response>, what: string): Promise<void> {
  const answer = await reply;
  const body = await answer.text();
  assert.equal(answer.status, 413, `${what}: ${body.slice(0, 500)}`);
  assert.match(body, /stored [\d.]+ \w+, and [\d.]+ \w+ more would be over server\.limits\.stored: 64 KiB/, what);
  if (!body.includes('"jsonrpc"') && !body.includes('"param"'))
    assert.equal(answer.headers.get("x-error-code"), "too_large", what);
}

/** All that stores something for a user, with what it needs before. */
const WAYS: Record<string, (to: TestService, headers: typeof ada, bytes: number) => Promise<Response>> = {
  "POST /api/memory/conversations": (to, headers, bytes) =>
    create(to, `new-${bytes}`, headers, { metadata: { text: text(bytes) } }),
  "POST /api/memory/save-messages": (to, headers, bytes) => save(to, "mine", [said(bytes)], headers),
  "PATCH /api/memory/conversations/:conversationId": (to, headers, bytes) =>
    fetch(`${to.url}/api/memory/conversations/mine?agentId=assistant`, {
      method: "PATCH",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify({ metadata: { text: text(bytes) } }),
    }),
  "POST /api/memory/conversations/:conversationId/working-memory": (to, headers, bytes) =>
    to.post("/api/memory/conversations/mine/working-memory", { agentId: "assistant", content: text(bytes) }, headers),
  "POST /workflows/:id/execute": (to, headers, bytes) => execute(to, "keep", {}, bytes, headers),
  "POST /workflows/:id/execute in the background": (to, headers, bytes) =>
    execute(to, "ask", { background: true }, bytes, headers),
  "POST /agents/:id/text in the background": (to, headers, bytes) =>
    to.post("/agents/keeper/text", { input: text(bytes), options: { background: true } }, headers),
  "POST /agents/:id/text of a durable agent": (to, headers, bytes) =>
    to.post("/agents/keeper/text", { input: text(bytes) }, headers),
  "POST /agents/:id/stream of a conversation": (to, headers, bytes) =>
    to.post("/agents/assistant/stream", { input: text(bytes), options: { conversationId: "mine" } }, headers),
  "POST /agents/:id/chat of a conversation": (to, headers, bytes) =>
    to.post("/agents/assistant/chat", { input: [said(bytes)], options: { conversationId: "new" } }, headers),
  "POST /v1/responses in the background": (to, headers, bytes) =>
    to.post("/v1/responses", { model: "keeper", input: text(bytes), background: true }, headers),
};

for (const { name, url } of STORES)
  describe(`server.limits.stored over ${name}`, () => {
    test("what one user stores is counted to the byte: conversations, messages, working memory, clones, executions, runs; and given back", async (t) => {
      const service = await serve(t, await url(t), "10MiB");
      await ok(create(service, "one"));
      await isExact(service, "creating a conversation");
      await ok(save(service, "one", [said(1000, "a"), said(2000), { role: "user", content: "größer" }]));
      await isExact(service, "saving");
      await ok(save(service, "one", [said(10, "a")]));
      await isExact(service, "replacing a message");
      await ok(
        service.post(
          "/api/memory/messages/delete",
          { agentId: "assistant", conversationId: "one", messageIds: ["a"] },
          ada,
        ),
      );
      await isExact(service, "deleting a message");
      for (const content of [text(5000), text(10)]) {
        await ok(service.post("/api/memory/conversations/one/working-memory", { agentId: "assistant", content }, ada));
        await isExact(service, "working memory of a conversation");
      }
      await ok(create(service, "n", ada, { agentId: "noter" }));
      for (const content of [text(700), text(70)])
        await ok(
          service.post("/api/memory/conversations/n/working-memory", { agentId: "noter", userId: "ada", content }, ada),
        );
      await isExact(service, "working memory of a user");
      await ok(
        service.post("/api/memory/conversations/one/clone", { agentId: "assistant", newConversationId: "two" }, ada),
      );
      await isExact(service, "cloning");
      await ok(
        save(
          service,
          "one",
          Array.from({ length: 40 }, () => said(20_000)),
        ),
      );
      await ok(
        service.post("/api/memory/conversations/one/clone", { agentId: "assistant", newConversationId: "three" }, ada),
      );
      await isExact(service, "cloning in several commits");
      await ok(service.post("/agents/assistant/text", { input: "Go", options: { conversationId: "talk" } }, ada));
      await isExact(service, "a generation");
      await ok(execute(service, "keep", { executionId: "k" }, 1000));
      await ok(execute(service, "grow", { executionId: "g" }, 1000));
      await ok(execute(service, "ask", { executionId: "q" }, 1000));
      await isExact(service, "executions");
      await ok(service.post("/workflows/ask/executions/q/resume", { resumeData: { text: text(500) } }, ada));
      await ok(service.post("/workflows/grow/executions/g/replay", { stepId: "s19" }, ada));
      await isExact(service, "resume and replay");
      await ok(service.post("/agents/keeper/text", { input: "Go" }, ada));
      const before = await isExact(service, "a run");
      await ok(remove(service, "/api/memory/conversations/n?agentId=noter"));
      for (const id of ["one", "two", "three", "talk"])
        await ok(remove(service, `/api/memory/conversations/${id}?agentId=assistant`));
      const left = await isExact(service, "deleting conversations");
      assert.ok(left < before - 1_600_000, `${left} of ${before}`);
    });

    test("what would be over it is 413 too_large that names use and bound at each way in, and nothing of it is stored; the next user is served", async (t) => {
      const service = await serve(t, await url(t), "64KiB");
      for (const headers of [ada, bob]) await ok(create(service, "mine", headers));
      await ok(save(service, "mine", [said(50 * KIB)]));
      await ok(execute(service, "grow", { executionId: "small" }, 10));
      const before = await isExact(service, "the first messages");
      // In `memory:` nothing is kept of the runs of a durable agent.
      const ways = Object.entries(WAYS).filter(([way]) => name !== "memory:" || !way.endsWith("durable agent"));
      for (const [way, ask] of ways) await isTooLarge(ask(service, ada, 40 * KIB), way);
      await isTooLarge(service.post("/api/memory/conversations/mine/clone", { agentId: "assistant" }, ada), "clone");
      await isTooLarge(execute(service, "grow", {}, 3 * KIB), "an execution that makes much of little");
      assert.equal(await isExact(service, "what was refused"), before);
      for (const [way, ask] of ways) {
        const { status } = await ask(service, bob, 100);
        assert.ok(status < 300, `${way} of the next user: ${status}`);
      }
      await ok(remove(service, "/api/memory/conversations/mine?agentId=assistant"));
      await ok(execute(service, "keep", {}, 20 * KIB));
      assert.equal(service.service.meters.limits.refused("server.limits.stored"), ways.length + 2);
    });

    test("many requests of one user at once are taken until it is reached, and the rest of them is refused", async (t) => {
      const service = await serve(t, await url(t), "64KiB");
      await ok(create(service, "mine"));
      const saves = Array.from({ length: 20 }, () => save(service, "mine", [said(10 * KIB)]));
      const executions = Array.from({ length: 10 }, () => execute(service, "keep", {}, 5 * KIB));
      const statuses = (await Promise.all([...saves, ...executions])).map(({ status }) => status);
      assert.deepEqual([...new Set(statuses)].sort(), [200, 413]);
      const rows = await isExact(service, "many requests");
      // An execution that had begun may end beyond it, by an eighth.
      assert.ok(rows <= 72 * KIB && rows > 50 * KIB, `${rows} bytes`);
    });
  });

const SQLITE = "server.limits.stored over sqlite:";

test(`${SQLITE} what was stored before it is set by a reload does not count, and is not given back; lowered, it refuses only what is new; raised, it lets more in; left out, it refuses nothing and goes on counting`, async (t) => {
  const store = file();
  const service = await serve(t, store);
  await ok(create(service, "old"));
  await ok(save(service, "old", [said(100_000, "a"), said(100_000, "b")]));
  await ok(execute(service, "ask", { executionId: "old" }, 50_000));
  assert.deepEqual(await counted(service).then(({ counters }) => counters), 0, "nothing is counted without it");
  const set = async (stored?: string | number) => {
    rewrite(service, manifest(store, stored));
    const answer = await service.post("/reload", {}, DEV);
    assert.ok(answer.ok, await answer.text());
  };
  const used = async () => (await counted(service)).counters;
  await set("64KiB");
  await ok(save(service, "old", [said(1000)]));
  const first = await used();
  assert.ok(first > 1000 && first < 3000, `${first}: what is new, and its conversation`);
  await ok(
    service.post(
      "/api/memory/messages/delete",
      { agentId: "assistant", conversationId: "old", messageIds: ["a"] },
      ada,
    ),
  );
  assert.equal(await used(), 0, "what was not counted gives no room");
  await ok(save(service, "old", [said(40_000)]));
  await isTooLarge(save(service, "old", [said(40_000)]), "over it");
  await set(30_000);
  const refused = await save(service, "old", [said(10)]);
  assert.equal(refused.status, 413);
  assert.match(((await refused.json()) as Loose).error, /server\.limits\.stored: 30000 B$/);
  for (const door of ["text", "stream", "chat"]) {
    const memory = { conversationId: "old" };
    const turn = await service.post(`/agents/assistant/${door}`, { input: "x".repeat(1000), options: { memory } }, ada);
    assert.match(await turn.text(), /server\.limits\.stored: 30000 B/, door);
  }
  await ok(service.get("/api/memory/conversations/old/messages?agentId=assistant", ada));
  await ok(service.post("/workflows/ask/executions/old/resume", {}, ada));
  await set("1MiB");
  await ok(save(service, "old", [said(40_000)]));
  const before = await used();
  await set();
  await ok(save(service, "old", [said(2_000_000 / 2)]));
  assert.ok((await used()) > before + 1_000_000, "it goes on counting");
  await ok(create(service, "new"));
  await ok(remove(service, "/api/memory/conversations/old?agentId=assistant"));
  await ok(remove(service, "/api/memory/conversations/new?agentId=assistant"));
  const left = await used();
  assert.ok(left < 10_000, `${left}: the resumed execution alone is left`);
});

test(`${SQLITE} a start of the service without it gives back what an earlier one has counted`, async (t) => {
  const store = file();
  const first = await serve(t, store, "1MiB");
  await ok(create(first, "mine"));
  await ok(save(first, "mine", [said(1000)]));
  const before = await isExact(first, "saving");
  await first.stop();
  const second = await serve(t, store);
  assert.equal((await counted(second)).counters, before);
  await ok(remove(second, "/api/memory/conversations/mine?agentId=assistant"));
  assert.deepEqual(await counted(second), { counters: 0, rows: 0 });
});

test(`${SQLITE} a turn that has begun is stored with its answer, and an execution that has begun goes on for an eighth beyond it; then it ends with an error that says so`, async (t) => {
  const plugins = [pluginFolder(t, { "tools/big.mjs": BIG })];
  const more = {
    providers: { demo: { use: "scripted", replies: [{ text: text(3000) }] } },
    tools: { big: { use: "big" } },
    workflows: {
      ...MANIFEST.workflows,
      work: {
        steps: [
          { id: "ask", andThen: { suspend: { reason: "?" } } },
          ...Array.from({ length: 10 }, (_, n) => ({ id: `s${n}`, andThen: { tool: "big", input: {} } })),
        ],
      },
    },
  };
  const service = await startService(t, { ...manifest(file(), "64KiB"), ...more }, { plugins });
  await ok(execute(service, "work", { executionId: "w" }, 100));
  await ok(create(service, "mine"));
  await ok(save(service, "mine", [said(61 * KIB)]));
  const talk = () => service.post("/agents/assistant/text", { input: "Go", options: { conversationId: "mine" } }, ada);
  await ok(talk());
  assert.ok((await isExact(service, "the turn")) > 64 * KIB);
  const { messages } = await ok(service.get("/api/memory/conversations/mine/messages?agentId=assistant", ada));
  assert.equal(messages.length, 3, "the answer is stored");
  assert.equal((await talk()).status, 413);
  const resumed = await service.post("/workflows/work/executions/w/resume", {}, ada);
  assert.equal(resumed.status, 500);
  assert.match(((await resumed.json()) as Loose).error, /this user has stored more than server\.limits\.stored allows/);
  assert.ok((await isExact(service, "the execution")) < 64 * KIB * 1.5);
});

test(`${SQLITE} after kill -9 among saves, clones and executions the counts are those of what is stored`, async (t) => {
  const store = file();
  const config = join(folder, "killed.yaml");
  writeFileSync(config, JSON.stringify(manifest(store, "100MiB")));
  const { child, url } = await start(t, [process.execPath, PENSTOCK, "serve", "--config", config, "--port", "0"]);
  const service = {
    url,
    post: (path: string, body: object, headers: object) =>
      fetch(url + path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(body),
      }),
  } as unknown as TestService;
  await ok(create(service, "mine"));
  await ok(save(service, "mine", [said(200_000), said(200_000), said(200_000)]));
  let answered = 0;
  const work = async (ask: () => Promise<Response>) => {
    for (;;) {
      await (await ask()).text();
      answered++;
    }
  };
  const working = [
    work(() => save(service, "mine", [said(1000)])),
    work(() => service.post("/api/memory/conversations/mine/clone", { agentId: "assistant" }, ada)),
    work(() => execute(service, "grow", {}, 2000)),
    work(() => service.post("/agents/keeper/text", { input: "Go" }, ada)),
  ].map((each) => each.catch(() => {}));
  await eventually(() => answered > 40, "some work");
  child.kill("SIGKILL");
  await Promise.all(working);
  const again = await serve(t, store, "100MiB");
  assert.ok((await isExact(again, "kill -9")) > 600_000);
});

for (const { name, url } of STORES.filter(({ name }) => name === "postgres:"))
  test(`server.limits.stored over ${name} two services on one store count the same bytes: what one stores the other refuses, and what one deletes the other has room for`, async (t) => {
    const store = await url(t);
    const [one, other] = [await serve(t, store, "64KiB"), await serve(t, store, "64KiB")];
    await ok(create(one, "mine"));
    await ok(save(one, "mine", [said(50 * KIB)]));
    await isTooLarge(save(other, "mine", [said(20 * KIB)]), "the other");
    await Promise.all(
      Array.from({ length: 20 }, (_, n) => save(n % 2 === 0 ? one : other, "mine", [said(100)]).then(ok as never)),
    );
    await isExact(other, "saves of both");
    await ok(remove(other, "/api/memory/conversations/mine?agentId=assistant"));
    assert.equal(await isExact(one, "the deletion"), 0);
    await ok(create(one, "mine"));
    await ok(save(one, "mine", [said(50 * KIB)]));
  });
