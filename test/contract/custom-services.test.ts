/** Contract, "Extension: custom routes and CORS": what a custom route is given, on whose behalf, and which paths it may have. */
import assert from "node:assert/strict";
import { before, describe, type TestContext, test } from "node:test";
import { CustomCall } from "../../core/api/custom/routes.ts";
import { type BootError, start } from "../../core/app/start.ts";
import { inject } from "../support/inject.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { SECRET, token } from "../support/tokens.ts";

type Headers = Record<string, string>;
const ada: Headers = { authorization: `Bearer ${token({ sub: "ada" })}` };
const bob: Headers = { authorization: `Bearer ${token({ sub: "bob" })}` };
const nameless: Headers = { authorization: `Bearer ${token({ name: "no id" })}` };
const console_: Headers = { "x-console-access-key": "the-key-of-the-console" };

/** Does what its body says: `{do: "memory.messages", with: ["c"], name?}`. */
const handle = `({ body }, call) => {
  const [part, method] = body.do.split(".");
  const on = part === "memory" ? call.memory(body.name) : call[part];
  return on[method](...body.with);
}`;
const doing = (name: string) =>
  `export default { kind: "route", name: "${name}", method: "POST", path: "/${name}", handle: ${handle} };`;
const route = (path: string, body: string, more = "") =>
  `export default { kind: "route", method: "GET", path: "${path}", ${more} handle: ${body} };`;

const PLUGINS = {
  "routes/do.mjs": doing("do"),
  "routes/open.mjs": doing("open"),
  "routes/key.mjs": doing("key"),
  "routes/who.mjs": route(
    "/who/:id",
    "({ user, params, query, headers }, call) => ({ user, params, query, agent: headers['user-agent'], keys: Object.keys(call) })",
  ),
  "routes/big.mjs": route("/big", "(_, { tools }) => tools.execute('add', { a: 1n })"),
  "routes/circle.mjs": route(
    "/circle",
    "(_, { workflows }) => { const a = {}; a.a = a; return workflows.execute('flow', { input: a }); }",
  ),
  "routes/deep.mjs": route(
    "/deep",
    "(_, { workflows }) => { let a = 1; for (let n = 0; n < 200; n++) a = [a]; return workflows.execute('flow', { input: a }); }",
  ),
  "routes/nothing.mjs": route("/nothing", "(_, { agents }) => agents.generateText('assistant')"),
  "routes/unnamed.mjs": route("/unnamed", "(_, { memory }) => memory().get(undefined)"),
  "routes/spoil.mjs": route(
    "/spoil",
    `async (_, { agents, workflows }) => {
    const input = { list: [1] };
    const { executionId } = await workflows.execute("flow", { input });
    input.list.push(2);
    const seen = [await agents.get("assistant"), await workflows.get("flow"), await workflows.state("flow", executionId)];
    for (const value of seen) for (const key of Object.keys(value)) if (Object.isFrozen(value[key]) === false) { value[key].spoilt = true; delete value[key].config; }
    return workflows.state("flow", executionId);
  }`,
  ),
  "routes/catch.mjs": route(
    "/catch",
    `async (_, { memory, agents }) => {
    const failures = [];
    for (const work of [() => memory().get("none"), () => agents.get("none"), () => agents.generateText("assistant", {})])
      await work().catch((error) => failures.push([error.name, error.kind, error.message]));
    return failures;
  }`,
  ),
  "routes/steal.mjs": route(
    "/steal",
    "({ user }, { memory }) => { user.id = user.sub = 'ada'; return memory().get('stolen'); }",
  ),
  "routes/noon.mjs": route("/at:noon/:who", "({ params }) => params"),
  "routes/hang.mjs": route("/hang", "(_, { tools }) => tools.execute('hang', {})"),
  "routes/hang-agent.mjs": route(
    "/hang-agent",
    "(_, { agents }) => agents.generateText('assistant', { input: 'hang' })",
  ),
  "routes/shaped.mjs": `export default { kind: "route", method: "POST", path: "/shaped/:id", summary: "Has a shape",
    query: { type: "object", properties: { loud: { type: "string" } }, required: ["loud"] },
    body: { type: "object", properties: { size: { type: "integer" } }, required: ["size"] },
    response: { type: "object", properties: { height: { type: "number" } } },
    handle: ({ body }) => ({ height: body.size }) };`,
  "tools/hang.mjs": `export default { kind: "tool", parameters: { type: "object" }, execute: (_, { signal }) =>
    new Promise((_, reject) => { process.emit("hang-begins"); signal.addEventListener("abort", () => { process.emit("hang-ends"); reject(signal.reason); }); }) };`,
  "tools/fail.mjs": `export default { kind: "tool", parameters: { type: "object" }, execute: () => { throw new Error("no luck"); } };`,
  "tools/whose.mjs": `export default { kind: "tool", parameters: { type: "object" }, execute: (_, { user, context }) => ({ user: user?.sub ?? null, context, at: new Date(0) }) };`,
};
const TOOLS = ["hang", "fail", "whose"];
const ROUTES = Object.keys(PLUGINS).flatMap((file) => /^routes\/(.*)\.mjs$/.exec(file)?.[1] ?? []);

const serve = (t: Pick<TestContext, "after">, rest: object = {}) =>
  startService(
    t,
    manifestWith(
      { tools: ["add", ...TOOLS], memory: "default" },
      {
        auth: {
          mode: "authNext",
          provider: { use: "jwt", secret: SECRET },
          publicRoutes: ["POST /open"],
          consoleRoutes: ["$defaults", "POST /key"],
        },
        tools: { add: { use: "add" }, ...Object.fromEntries(TOOLS.map((use) => [use, { use }])) },
        memory: { default: { workingMemory: {}, semantic: { embedding: "local/hash" } }, notes: {} },
        providers: { demo: { use: "scripted", replies: [{ when: "^hang$", call: { tool: "hang", input: {} } }] } },
        workflows: {
          flow: { steps: [{ id: "one", andThen: { set: "{{ input }}" } }] },
          asking: { steps: [{ id: "ask", andThen: { suspend: { reason: "Sure?" } } }] },
          failing: { steps: [{ id: "fail", andThen: { tool: "fail", input: {} } }] },
        },
        routes: ROUTES.map((use) => ({ use })),
        ...rest,
      },
    ),
    {
      plugins: [pluginFolder(t as TestContext, PLUGINS)],
      env: { SERVICE_CONSOLE_ACCESS_KEY: "the-key-of-the-console" },
    },
  );

interface Answer {
  status: number;
  code: string | undefined;
  headers: Headers;
  data: Loose;
  error: string;
}

async function send(method: string, path: string, headers: Headers, body?: unknown): Promise<Answer> {
  const reply = await inject(service.dispatch, { method, path, headers, body });
  const { data, error } = reply.json() as Loose;
  return { status: reply.status, code: reply.headers["x-error-code"], headers: reply.headers, data, error };
}

const ask = (headers: Headers, what: string, ...given: unknown[]) =>
  send("POST", "/do", headers, { do: what, with: given });
const done = async (headers: Headers, what: string, ...given: unknown[]): Promise<Loose> => {
  const { status, data, error } = await ask(headers, what, ...given);
  assert.equal(status, 200, `${what}: ${error}`);
  return data;
};

let service: TestService;
before(async (t) => {
  service = await serve(t as TestContext);
});

test("a custom route sees the user, and what its request says", async () => {
  const { data } = await send("GET", "/who/7%2F8?a=1", { ...ada, "User-Agent": "probe" });
  const { user, ...rest } = data;
  assert.equal(user.sub, "ada");
  assert.deepEqual(rest, { params: { id: "7/8" }, query: { a: "1" }, agent: "probe", keys: ["requestId"] });
  assert.equal((await send("GET", "/who/7", {})).status, 401);
  assert.deepEqual((await send("GET", "/at:noon/ada", ada)).data, { who: "ada" }, "a colon in a word is no parameter");
});

test("a route that uses nothing of its call pays nothing for it", () => {
  const read = () => assert.fail("nothing was asked for");
  const context = new Proxy({ requestId: "r" }, { get: (target, key) => (key in target ? "r" : read()) });
  const call = new CustomCall(context as never);
  assert.deepEqual({ ...call }, { requestId: "r" });
});

describe("custom routes: what the API replies, as values", () => {
  test("a custom route lists agents, asks them and reads their history as the API does", async () => {
    const list = await done(ada, "agents.list");
    assert.deepEqual(list, (await send("GET", "/agents", console_)).data);
    assert.deepEqual(
      await done(ada, "agents.get", "assistant"),
      (await send("GET", "/agents/assistant", console_)).data,
    );
    const told = await done(ada, "agents.generateText", "assistant", { input: "Hi", options: { maxSteps: 1 } });
    assert.deepEqual([told.text, told.finishReason, told.toolCalls], ["Hi", "stop", []]);
    const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
    const object = await done(ada, "agents.generateObject", "assistant", { input: "Hi", schema });
    assert.ok(Number.isInteger(object.n), JSON.stringify(object));
    const { entries } = await done(ada, "agents.history", "assistant", { limit: 1 });
    assert.equal(entries.length, 1);
  });

  test("a custom route calls tools, whose results are as JSON has them, and who see the caller and the context", async () => {
    assert.deepEqual(await done(ada, "tools.list"), (await send("GET", "/tools", console_)).data);
    assert.deepEqual(await done(ada, "tools.execute", "add", { a: 1, b: 2 }), { sum: 3 });
    const told = await done(bob, "tools.execute", "whose", {}, { context: { tenant: "t" } });
    assert.deepEqual(told, { user: "bob", context: { tenant: "t" }, at: "1970-01-01T00:00:00.000Z" });
  });

  test("a custom route runs, resumes and lists workflows as the API does", async () => {
    assert.deepEqual(await done(ada, "workflows.list"), (await send("GET", "/workflows", console_)).data);
    assert.deepEqual(await done(ada, "workflows.get", "flow"), (await send("GET", "/workflows/flow", console_)).data);
    const options = { executionId: "values-1" };
    const ran = await done(ada, "workflows.execute", "flow", { input: { n: 1 }, options });
    assert.deepEqual([ran.executionId, ran.status, ran.result], ["values-1", "completed", { n: 1 }]);
    const state = await done(ada, "workflows.state", "flow", "values-1");
    assert.deepEqual([state.status, state.userId], ["completed", "ada"]);
    const again = await done(ada, "workflows.replay", "flow", "values-1", { stepId: "one" });
    assert.notEqual(again.executionId, "values-1");
    const { executionId, status } = await done(ada, "workflows.execute", "asking", { input: 1 });
    assert.equal(status, "suspended");
    const resumed = await done(ada, "workflows.resume", "asking", executionId, { resumeData: { ok: true } });
    assert.deepEqual([resumed.status, resumed.executionId], ["completed", executionId]);
    const other = await done(ada, "workflows.execute", "asking", { input: 1 });
    const cancelled = await done(ada, "workflows.cancel", "asking", other.executionId, "enough");
    assert.deepEqual([cancelled.status, cancelled.reason], ["cancelled", "enough"]);
    const list = await done(ada, "workflows.executions", { workflowId: "asking", limit: 5 });
    assert.deepEqual(
      list.map(({ id }: Loose) => id),
      [other.executionId, executionId],
    );
    assert.equal((await ask(ada, "workflows.suspend", "flow", "values-1")).status, 400, "it does not run");
  });

  test("a custom route reads and writes conversations as the API does", async () => {
    const made = await done(ada, "memory.create", { conversationId: "v", title: "Tea", metadata: { a: 1 } });
    assert.deepEqual([made.id, made.userId, made.resourceId], ["v", "ada", "assistant"]);
    assert.deepEqual(await done(ada, "memory.get", "v"), made);
    assert.equal((await done(ada, "memory.update", "v", { title: "Coffee" })).title, "Coffee");
    const messages = [
      { id: "m1", role: "user", content: "green tea" },
      { role: "assistant", content: "of course" },
    ];
    assert.equal(await done(ada, "memory.save", { conversationId: "v", messages }), 2);
    const read = await done(ada, "memory.messages", "v", { limit: 1, roles: "user" });
    assert.deepEqual([read.conversation.title, read.messages.map(({ id }: Loose) => id)], ["Coffee", ["m1"]]);
    assert.equal(await done(ada, "memory.updateWorkingMemory", "v", { content: "likes tea" }), null);
    assert.equal((await done(ada, "memory.workingMemory", "v")).content, "likes tea");
    const found = await done(ada, "memory.search", "green tea", { threshold: 0, limit: 1 });
    assert.equal(found.results[0].conversationId, "v");
    const copy = await done(ada, "memory.clone", "v");
    assert.equal(copy.messageCount, 2);
    assert.equal(await done(ada, "memory.deleteMessages", { conversationId: "v", messageIds: ["m1", "x"] }), 1);
    assert.equal(await done(ada, "memory.delete", "v"), null);
    assert.equal((await ask(ada, "memory.get", "v")).status, 404);
    const { conversations } = await done(ada, "memory.conversations", { limit: 200 });
    assert.ok(conversations.some(({ id }: Loose) => id === copy.conversation.id));
  });

  test("a custom route names a memory, and no body of a request changes which", async () => {
    const on = (name: string | undefined, what: string, ...given: unknown[]) =>
      send("POST", "/do", ada, { do: what, with: given, name });
    const made = await on("notes", "memory.create", { conversationId: "n", agentId: "assistant" });
    assert.deepEqual([made.status, made.data.resourceId], [200, "notes"]);
    await on("notes", "memory.save", {
      conversationId: "n",
      messages: [{ role: "user", content: "x" }],
      agentId: "assistant",
    });
    assert.equal((await on("notes", "memory.messages", "n", { agentId: "assistant" })).data.messages.length, 1);
    assert.equal((await on("notes", "memory.search", "x")).status, 400, "it has no embedding");
    const missing = await on("none", "memory.get", "n");
    assert.deepEqual([missing.status, missing.error], [404, 'memory "none" does not exist']);
  });

  test("values that a custom route gets from the API are its own: what it does to them, and to what it gave, changes nothing", async () => {
    const before = (await send("GET", "/agents/assistant", console_)).data;
    const { status, data } = await send("GET", "/spoil", ada);
    assert.equal(status, 200);
    assert.deepEqual(data.input, { list: [1] });
    assert.deepEqual((await send("GET", "/agents/assistant", console_)).data, before);
    assert.ok(!JSON.stringify((await send("GET", "/workflows/flow", console_)).data).includes("spoilt"));
  });
});

test("what the API refuses is refused with its status, code, message and headers", async () => {
  const LONG = "x".repeat(300);
  const rows: [string, unknown[], string, string, unknown?][] = [
    ["agents.generateText", ["none", { input: "x" }], "POST", "/agents/none/text", { input: "x" }],
    ["agents.generateText", ["assistant", {}], "POST", "/agents/assistant/text", {}],
    ["agents.generateText", ["assistant", { input: [] }], "POST", "/agents/assistant/text", { input: [] }],
    [
      "agents.generateText",
      ["assistant", { input: "x", options: { maxSteps: 0 } }],
      "POST",
      "/agents/assistant/text",
      { input: "x", options: { maxSteps: 0 } },
    ],
    [
      "agents.generateText",
      ["assistant", { input: "x", options: { userId: "bob" } }],
      "POST",
      "/agents/assistant/text",
      { input: "x", options: { userId: "bob" } },
    ],
    ["agents.generateObject", ["assistant", { input: "x" }], "POST", "/agents/assistant/object", { input: "x" }],
    ["tools.execute", ["none", {}], "POST", "/tools/none/execute", { input: {} }],
    ["tools.execute", ["add", { a: "1" }], "POST", "/tools/add/execute", { input: { a: "1" } }],
    ["tools.execute", ["add", 7], "POST", "/tools/add/execute", { input: 7 }],
    ["tools.execute", ["fail", {}], "POST", "/tools/fail/execute", { input: {} }],
    ["workflows.execute", ["none", { input: 1 }], "POST", "/workflows/none/execute", { input: 1 }],
    [
      "workflows.execute",
      ["flow", { input: 1, options: { userId: "bob" } }],
      "POST",
      "/workflows/flow/execute",
      { input: 1, options: { userId: "bob" } },
    ],
    [
      "workflows.execute",
      ["flow", { input: 1, options: { executionId: "a b" } }],
      "POST",
      "/workflows/flow/execute",
      { input: 1, options: { executionId: "a b" } },
    ],
    ["workflows.resume", ["flow", "none"], "POST", "/workflows/flow/executions/none/resume", {}],
    ["workflows.cancel", ["flow", LONG], "POST", `/workflows/flow/executions/${LONG}/cancel`, {}],
    ["memory.get", ["none"], "GET", "/api/memory/conversations/none"],
    ["memory.get", [LONG], "GET", `/api/memory/conversations/${LONG}`],
    ["memory.create", [{ userId: "bob" }], "POST", "/api/memory/conversations", { userId: "bob" }],
    ["memory.conversations", [{ limit: 0 }], "GET", "/api/memory/conversations?limit=0"],
    ["memory.messages", ["c", { roles: "robot" }], "GET", "/api/memory/conversations/c/messages?roles=robot"],
    ["memory.save", [{ messages: [] }], "POST", "/api/memory/save-messages", { messages: [] }],
    ["memory.search", [""], "GET", "/api/memory/search?searchQuery="],
  ];
  for (const [what, given, method, path, body] of rows) {
    const own = await ask(ada, what, ...given);
    const api = await send(method, path, ada, body);
    const of = ({ status, code, error }: Answer) => [status, code, error];
    assert.deepEqual(of(own), of(api), `${what} ${JSON.stringify(given).slice(0, 100)}`);
    assert.ok(own.status >= 400 && own.status !== 401, what);
  }
  const failed = await ask(ada, "workflows.execute", "failing", { input: 1, options: { executionId: "failed-1" } });
  assert.deepEqual([failed.status, failed.code, failed.headers["x-execution-id"]], [500, "step_failed", "failed-1"]);
  assert.match(failed.error, /no luck/);
  await done(ada, "memory.create", { conversationId: "taken" });
  assert.equal((await ask(ada, "memory.create", { conversationId: "taken" })).status, 409);
  assert.equal((await ask(nameless, "memory.conversations")).status, 401);
});

test("what is no JSON, or no name, is refused with 400", async () => {
  for (const path of ["/big", "/circle", "/deep", "/nothing", "/unnamed"]) {
    const { status, error } = await send("GET", path, ada);
    assert.equal(status, 400, `${path}: ${error}`);
  }
});

test("a route may catch what was refused: it is the ServiceError of #plugin", async () => {
  const { data } = await send("GET", "/catch", ada);
  assert.deepEqual(data, [
    ["ServiceError", "not_found", data[0][2]],
    ["ServiceError", "not_found", 'agent "none" does not exist'],
    ["ServiceError", "invalid_input", "input is required"],
  ]);
});

describe("custom routes: isolation", () => {
  const objects: [string, unknown[]][] = [
    ["workflows.state", ["asking", "w"]],
    ["workflows.suspend", ["asking", "w"]],
    ["workflows.resume", ["asking", "w"]],
    ["workflows.cancel", ["asking", "w"]],
    ["workflows.replay", ["asking", "w", { stepId: "ask" }]],
    ["memory.get", ["c"]],
    ["memory.update", ["c", { title: "mine" }]],
    ["memory.clone", ["c"]],
    ["memory.messages", ["c"]],
    ["memory.save", [{ conversationId: "c", messages: [{ role: "user", content: "x" }] }]],
    ["memory.deleteMessages", [{ conversationId: "c", messageIds: ["m"] }]],
    ["memory.workingMemory", ["c"]],
    ["memory.updateWorkingMemory", ["c", { content: "mine" }]],
    ["memory.delete", ["c"]],
  ];
  const lists: [string, unknown[], string][] = [
    ["agents.history", ["assistant", { limit: 100 }], '"conversationId":"c"'],
    ["workflows.executions", [{ limit: 500 }], '"w"'],
    ["memory.conversations", [{ limit: 200 }], '"c"'],
    ["memory.search", ["secret tea", { threshold: 0 }], '"conversationId":"c"'],
  ];

  before(async () => {
    await done(ada, "memory.create", { conversationId: "c" });
    const messages = [{ id: "m", role: "user", content: "secret tea" }];
    await done(ada, "memory.save", { conversationId: "c", messages });
    await done(ada, "agents.generateText", "assistant", { input: "x", options: { memory: { conversationId: "c" } } });
    await done(ada, "workflows.execute", "asking", { input: 1, options: { executionId: "w" } });
    await done(ada, "memory.create", { conversationId: "twice" });
    await done(ada, "workflows.execute", "asking", { input: 1, options: { executionId: "twice" } });
  });

  test("what belongs to one user does not exist for another, nor for nobody on a public route", async () => {
    const before = await done(ada, "memory.messages", "c");
    for (const [what, given] of objects) {
      assert.equal((await ask(bob, what, ...given)).status, 404, what);
      const nobody = await send("POST", "/open", {}, { do: what, with: given });
      assert.ok([400, 404].includes(nobody.status), `${what}: ${nobody.status}`);
      const ignored = await send("POST", "/open", ada, { do: what, with: given });
      assert.ok([400, 404].includes(ignored.status), "a public route looks at no credentials");
    }
    assert.deepEqual(await done(ada, "memory.messages", "c"), before);
    assert.equal((await done(ada, "workflows.state", "asking", "w")).status, "suspended");
  });

  test("of several users with objects of one id, a custom route of the console says whose it means", async () => {
    const asKey = (what: string, given: unknown[]) => send("POST", "/key", console_, { do: what, with: given });
    const before = await done(ada, "memory.messages", "twice");
    await done(bob, "agents.generateText", "assistant", { input: "his", options: { conversationId: "twice" } });
    await done(bob, "workflows.execute", "asking", { input: 1, options: { executionId: "twice" } });
    assert.deepEqual(await done(ada, "memory.messages", "twice"), before);
    const rest: [string, unknown[]][] = [
      ["memory.get", []],
      ["memory.update", [{ title: "x" }]],
      ["memory.clone", [{}]],
      ["memory.messages", []],
      ["memory.workingMemory", []],
    ];
    for (const [what, given] of rest) {
      assert.equal((await asKey(what, ["twice", ...given])).status, 400, what);
      const reply = await asKey(what, ["twice", ...given, { userId: "bob" }]);
      assert.equal(reply.status, 200, `${what}: ${JSON.stringify(reply)}`);
    }
    assert.equal((await asKey("memory.get", ["twice", { userId: "bob" }])).data.title, "x");
    assert.equal((await asKey("workflows.state", ["asking", "twice"])).status, 400);
    const whose = { userId: "bob" };
    assert.equal((await asKey("workflows.state", ["asking", "twice", whose])).data.userId, "bob");
    assert.equal((await asKey("workflows.resume", ["asking", "twice", {}, whose])).data.status, "completed");
    assert.equal(
      (await asKey("workflows.replay", ["asking", "twice", { stepId: "ask" }, whose])).data.status,
      "completed",
    );
    assert.equal((await done(ada, "workflows.state", "asking", "twice")).status, "suspended");
    assert.equal((await asKey("workflows.suspend", ["asking", "twice", undefined, { userId: "ada" }])).status, 400);
    assert.equal(
      (await asKey("workflows.cancel", ["asking", "twice", "x", { userId: "ada" }])).data.status,
      "cancelled",
    );
    await done(bob, "memory.delete", "twice");
    assert.equal((await asKey("memory.get", ["twice"])).data.userId, "ada");
  });

  test("auth.isolation: lists that a custom route asks for show the caller's own", async () => {
    for (const [what, given, mark] of lists) {
      assert.ok(JSON.stringify(await done(ada, what, ...given)).includes(mark), what);
      assert.ok(!JSON.stringify(await done(bob, what, ...given)).includes(mark), what);
      const { data } = await send("POST", "/open", {}, { do: what, with: given });
      assert.ok(!JSON.stringify(data ?? null).includes(mark), what);
    }
  });

  test("a custom route of the console sees everything, as the console does", async () => {
    const asKey = (what: string, given: unknown[]) => send("POST", "/key", console_, { do: what, with: given });
    assert.equal((await send("POST", "/key", ada, { do: "memory.get", with: ["c"] })).status, 401);
    for (const [what, given, mark] of lists)
      assert.ok(JSON.stringify((await asKey(what, given)).data).includes(mark), what);
    assert.equal((await asKey("memory.get", ["c"])).data.userId, "ada");
    assert.equal((await asKey("workflows.state", ["asking", "w"])).data.userId, "ada");
  });
});

test("a route that calls its user by another name acts for the same one", async (t) => {
  const tokens = { "token-of-ada-0123456789": { id: "ada" }, "token-of-bob-0123456789": { id: "bob" } };
  const other = await serve(t, { auth: { mode: "authNext", provider: { use: "static", tokens } } });
  const as = async (who: string, path: string, body?: unknown) => {
    const headers = { authorization: `Bearer token-of-${who}-0123456789` };
    const method = body === undefined ? "GET" : "POST";
    return (await inject(other.dispatch, { method, path, headers, body })).status;
  };
  const ownsIt = { do: "memory.get", with: ["stolen"] };
  assert.equal(await as("ada", "/do", { do: "memory.create", with: [{ conversationId: "stolen" }] }), 200);
  assert.equal(await as("bob", "/steal"), 404);
  assert.equal(await as("bob", "/do", ownsIt), 404, "nor in requests that follow");
  assert.equal(await as("ada", "/steal"), 200);
});

describe("custom routes: the signal", () => {
  /** Resolves when the tool has begun and, later, when it was told to stop. */
  const hanging = () => {
    const once = (name: string) => new Promise<void>((resolve) => void process.once(name as never, () => resolve()));
    return { begins: once("hang-begins"), ends: once("hang-ends") };
  };

  for (const path of ["/hang", "/hang-agent"]) {
    test(`GET ${path}: a client that leaves ends what the custom route runs`, async () => {
      const { begins, ends } = hanging();
      const client = new AbortController();
      const reply = inject(service.dispatch, { path, headers: ada, signal: client.signal }).catch(() => null);
      await begins;
      client.abort();
      await ends;
      await reply;
    });
  }

  test("limits.request ends what a custom route runs", async (t) => {
    const slow = await serve(t, { server: { limits: { request: "1s" } } });
    const { begins, ends } = hanging();
    const reply = inject(slow.dispatch, { path: "/hang-agent", headers: ada });
    await begins;
    await ends;
    assert.equal((await reply).status, 503);
  });
});

test("/doc has the schemas of a custom route, and requests are checked against them", async () => {
  const reply = await inject(service.dispatch, { path: "/doc", headers: console_ });
  const row = (reply.json() as Loose).paths["/shaped/{id}"].post;
  assert.equal(row.summary, "Has a shape");
  assert.deepEqual(
    row.parameters.map(({ name, in: where, required }: Loose) => [name, where, required]),
    [
      ["id", "path", true],
      ["loud", "query", true],
    ],
  );
  assert.deepEqual(row.requestBody.content["application/json"].schema.properties, { size: { type: "integer" } });
  assert.match(JSON.stringify(row.responses["200"]), /"height":\{"type":"number"\}/);
  assert.equal((await send("POST", "/shaped/1", ada, { size: 1 })).error, "loud is required");
  assert.equal((await send("POST", "/shaped/1?loud=1", ada, { size: "1" })).error, "size must be integer");
  assert.deepEqual((await send("POST", "/shaped/1?loud=1", ada, { size: 1 })).data, { height: 1 });
});

describe("a custom route and the paths that are taken", () => {
  async function problemsOf(t: TestContext, routes: readonly [method: string, path: string][]): Promise<string[]> {
    const files = Object.fromEntries(
      routes.map(([method, path], index) => [
        `plugins/routes/r${index}.mjs`,
        `export default { kind: "route", method: "${method}", path: "${path}", handle: () => 1 };`,
      ]),
    );
    const lines = ["name: Paths", "server: { port: 0 }", "store: 'memory:'", "plugins: [./plugins]", "routes:"];
    const yaml = [...lines, ...routes.map((_, index) => `  - use: r${index}`), ""].join("\n");
    const folder = pluginFolder(t, { ...files, "service.yaml": yaml });
    const log = { write: () => {} };
    try {
      const running = await start({ config: `${folder}/service.yaml`, port: 0, log, env: {} });
      await running.kill();
      return [];
    } catch (error) {
      const { issues } = (error as BootError).booted;
      return issues
        .filter(({ severity }) => severity === "error")
        .map(({ line, column, message }) => `${line}:${column} ${message}`);
    }
  }

  test("one that would take the requests of a built-in route is an error with its place", async (t) => {
    const taken: [string, string][] = [
      ["GET", "/agents"],
      ["GET", "/agents/:id"],
      ["GET", "/agents/:name"],
      ["POST", "/agents/:who/text"],
      ["GET", "/workflows/:a/executions/:b/state"],
      ["GET", "/healthz"],
    ];
    assert.deepEqual(
      await problemsOf(t, taken),
      taken.map(([method, path], index) => `${6 + index}:5 ${method} ${path} is taken by another route`),
    );
  });

  test("a custom route is an error too where it has a literal in the place of a parameter: other methods would be gone there too", async (t) => {
    const rows: [string, string, string][] = [
      ["GET", "/agents/me", "GET /agents/:id"],
      ["DELETE", "/agents/me", "GET /agents/:id"],
      ["POST", "/agents/me/text", "POST /agents/:id/text"],
      ["POST", "/tools/:tool/execute/", ""],
      ["PUT", "/workflows/:w/executions/last/state", "GET /workflows/:id/executions/:executionId/state"],
    ];
    const hiding = rows.flatMap(([method, path, other], index) =>
      other === ""
        ? []
        : [`${6 + index}:5 ${method} ${path} would hide ${other}: choose a path that it does not match`],
    );
    assert.deepEqual(
      await problemsOf(
        t,
        rows.map(([method, path]) => [method, path]),
      ),
      hiding,
    );
  });

  test("two custom routes of one shape are one too many", async (t) => {
    const [problem, ...rest] = await problemsOf(t, [
      ["GET", "/orders/:id"],
      ["GET", "/orders/:order"],
    ]);
    assert.deepEqual([problem, rest], ["7:5 GET /orders/:order is taken by another route", []]);
  });

  test("paths beside them are free: another method, a longer path, more parameters, a literal beside one's own parameter", async (t) => {
    const free: [string, string][] = [
      ["DELETE", "/agents/:name"],
      ["GET", "/agents/:id/secret"],
      ["GET", "/agents/"],
      ["GET", "/:kind/:id"],
      ["GET", "/orders/:id"],
      ["GET", "/orders/last"],
      ["GET", "/a:b/:c"],
      ["GET", "/a:d/:c"],
    ];
    assert.deepEqual(await problemsOf(t, free), []);
  });
});
