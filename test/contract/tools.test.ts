/** Contract, "Tools": `GET /tools` and `POST /tools/:name/execute`, for plugins and for REST calls. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { FIXTURES } from "../support/fixtures.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, errorOf } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const TOOLS = {
  sum: { use: "add" },
  plain: { use: "whoami", description: "Ours", tags: ["a", "b"] },
  fail: { use: "fail" },
  guarded: { use: "add", approval: true },
};
const ADD = {
  type: "object",
  properties: { a: { type: "number" }, b: { type: "number" } },
  required: ["a", "b"],
  additionalProperties: false,
};

function serve(t: TestContext, rest: object = {}, plugins = [FIXTURES]) {
  const agents = {
    desk: {
      name: "Desk",
      model: "demo/echo",
      tools: ["sum", { use: "plain", if: "has(context.staff)" }],
      memory: false,
    },
    shop: { model: "demo/echo", tools: ["sum"], memory: false },
  };
  return startService(t, manifestWith({}, { tools: TOOLS, agents, ...rest }), { plugins });
}

for (const transport of TRANSPORTS) {
  const server = { transport };

  describe(`over ${transport}`, () => {
    test("GET /tools lists every tool by its name in the manifest, with the agents that own it, conditional ones too", async (t) => {
      const service = await serve(t, { server });
      const [sum, plain, fail, guarded, ...more] = await dataOf(service.get("/tools"));
      assert.deepEqual(sum, {
        name: "sum",
        description: "Adds two numbers",
        tags: ["math"],
        parameters: ADD,
        status: "ready",
        agents: [
          { id: "desk", name: "Desk" },
          { id: "shop", name: "shop" },
        ],
      });
      assert.deepEqual(plain, {
        name: "plain",
        description: "Ours",
        tags: ["a", "b"],
        parameters: { type: "object" },
        status: "ready",
        agents: [{ id: "desk", name: "Desk" }],
      });
      assert.deepEqual([fail.name, fail.tags, fail.agents], ["fail", [], []]);
      assert.equal(guarded.name, "guarded");
      assert.deepEqual(more, []);
    });

    test("HEAD /tools has the status and headers of GET, and no body", async (t) => {
      const service = await serve(t, { server });
      const get = await service.get("/tools");
      const head = await fetch(`${service.url}/tools`, { method: "HEAD" });
      assert.equal(head.status, 200);
      assert.equal(head.headers.get("content-length"), String((await get.arrayBuffer()).byteLength));
      assert.equal((await head.arrayBuffer()).byteLength, 0);
    });

    test("POST /tools/:name/execute gives toolName, result, executionTime in milliseconds and a timestamp", async (t) => {
      const service = await serve(t, { server });
      const { executionTime, timestamp, ...rest } = await dataOf(
        service.post("/tools/sum/execute", { input: { a: 2, b: 3.5 } }),
      );
      assert.deepEqual(rest, { toolName: "sum", result: { sum: 5.5 } });
      assert.ok(executionTime >= 0 && executionTime < 60_000);
      assert.equal(Math.round(executionTime * 1000) / 1000, executionTime, "to the microsecond");
      assert.equal(new Date(timestamp).toISOString(), timestamp);
      // The clock may be set by some milliseconds meanwhile.
      assert.ok(Math.abs(Date.parse(timestamp) - Date.now()) < 60_000, timestamp);
    });

    test("POST /tools/:name/execute: what the tool threw is in the 500, with the code tool_failed", async (t) => {
      const service = await serve(t, { server });
      for (const [how, error] of [
        ["now", "the shop is closed"],
        ["later", "the shop burned down"],
        ["nothing", 'tool "fail" failed'],
      ]) {
        const reply = await service.post("/tools/fail/execute", { input: { how } });
        assert.equal(reply.headers.get("x-error-code"), "tool_failed");
        assert.deepEqual(await errorOf(reply), { status: 500, error });
      }
    });
  });
}

test("POST /tools/:name/execute: a tool that takes its time is waited for, and the time is told", async (t) => {
  const plugins = pluginFolder(t, {
    "tools/wait.mjs": `export default { kind: "tool", name: "wait", execute: () => new Promise((resolve) => setTimeout(resolve, 60)) };`,
  });
  const service = await serve(t, { tools: { ...TOOLS, wait: { use: "wait" } } }, [FIXTURES, plugins]);
  const { executionTime, result } = await dataOf(service.post("/tools/wait/execute", { input: {} }));
  assert.ok(executionTime >= 55, String(executionTime));
  assert.equal(result, null, "a tool that gives nothing gives null");
});

test("POST /tools/:name/execute: context reaches the tool, and is {} when it is left out", async (t) => {
  const service = await serve(t);
  const run = async (body: object) =>
    (await dataOf(service.post("/tools/plain/execute", body, { "x-request-id": "r-1" }))).result;
  const common = { input: { a: 1 }, user: null, requestId: "r-1" };
  assert.deepEqual(await run({ input: { a: 1 }, context: { shop: "Lisbon" } }), {
    ...common,
    context: { shop: "Lisbon" },
  });
  assert.deepEqual(await run({ input: { a: 1 } }), { ...common, context: {} });
});

const INVALID: [title: string, body: unknown, error: RegExp][] = [
  ["input that misses a field", { input: { a: 1 } }, /^input\.b is required$/],
  ["input of the wrong type", { input: { a: "1", b: 2 } }, /^input\.a must be number$/],
  ["input with a field too many", { input: { a: 1, b: 2, c: 3 } }, /^input\.c/],
  ["input with several problems", { input: { a: "1", b: "2" } }, /^input\.a must be number; input\.b must be number$/],
  ["no input", {}, /^input is required$/],
  ["input that is no object", { input: [1] }, /^input must be object$/],
  ["context that is no object", { input: { a: 1, b: 2 }, context: "x" }, /^context must be object$/],
];
for (const [title, body, error] of INVALID) {
  test(`POST /tools/:name/execute: ${title} is 400 and named`, async (t) => {
    const service = await serve(t);
    const reply = await service.post("/tools/sum/execute", body);
    assert.equal(reply.headers.get("x-error-code"), "invalid_input");
    const answer = await errorOf(reply);
    assert.equal(answer.status, 400);
    assert.match(answer.error, error);
  });
}

for (const name of ["nothing", "constructor", "__proto__"]) {
  test(`POST /tools/:name/execute of the unknown tool ${name} is 404`, async (t) => {
    const service = await serve(t);
    const answer = await errorOf(service.post(`/tools/${name}/execute`, { input: {} }));
    assert.deepEqual(answer, { status: 404, error: `tool "${name}" does not exist` });
  });
}

test("POST /tools/:name/execute: a tool that needs approval does not run: 409", async (t) => {
  const service = await serve(t);
  const reply = await service.post("/tools/guarded/execute", { input: { a: 1, b: 2 } });
  assert.equal(reply.headers.get("x-error-code"), "conflict");
  assert.equal((await errorOf(reply)).status, 409);
});

test("POST /tools/:name/execute: a tool over its time limit is 500, and its signal aborts", async (t) => {
  const plugins = pluginFolder(t, {
    "tools/hang.mjs": `export default { kind: "tool", name: "hang", execute: (input, call) => new Promise(() => {
        call.signal.addEventListener("abort", () => call.logger.info("the tool heard of it")); }) };`,
  });
  const service = await serve(t, { tools: { hang: { use: "hang", timeout: "50ms" } }, agents: AGENT }, [plugins]);
  const answer = await errorOf(service.post("/tools/hang/execute", { input: {} }));
  assert.deepEqual(answer, { status: 500, error: 'tool "hang" timed out after 50ms' });
  assert.ok(service.log.some(({ msg }) => msg === "the tool heard of it"));
});

const AGENT = { assistant: { model: "demo/echo", memory: false } };
