/** Contract, "Tools": `GET /tools` and `POST /tools/:name/execute`, for plugins and for REST calls. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, type TestContext, test } from "node:test";
import { FIXTURES } from "../support/fixtures.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, errorOf, type Loose } from "../support/served-upstream.ts";
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
    desk: { name: "Desk", model: "demo/echo", tools: ["sum", { use: "plain", if: "has(context.staff)" }], memory: false },
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
      const before = Date.now();
      const { executionTime, timestamp, ...rest } = await dataOf(
        service.post("/tools/sum/execute", { input: { a: 2, b: 3.5 } }),
      );
      assert.deepEqual(rest, { toolName: "sum", result: { sum: 5.5 } });
      assert.ok(executionTime >= 0 && executionTime < 5_000);
      assert.equal(Math.round(executionTime * 1000) / 1000, executionTime, "to the microsecond");
      assert.equal(new Date(timestamp).toISOString(), timestamp);
      assert.ok(Date.parse(timestamp) >= before - 1 && Date.parse(timestamp) <= Date.now() + 1);
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
  assert.deepEqual(await run({ input: { a: 1 }, context: { shop: "Lisbon" } }), { ...common, context: { shop: "Lisbon" } });
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
    "tools/hang.mjs": `export const aborts = [];
      export default { kind: "tool", name: "hang", execute: (input, call) => new Promise(() => {
        call.signal.addEventListener("abort", () => call.logger.info("the tool heard of it")); }) };`,
  });
  const service = await serve(t, { tools: { hang: { use: "hang", timeout: "50ms" } }, agents: AGENT }, [plugins]);
  const answer = await errorOf(service.post("/tools/hang/execute", { input: {} }));
  assert.deepEqual(answer, { status: 500, error: 'tool "hang" timed out after 50ms' });
  assert.ok(service.log.some(({ msg }) => msg === "the tool heard of it"));
});

const AGENT = { assistant: { model: "demo/echo", memory: false } };

describe("a REST call as a tool", () => {
  interface Seen {
    method?: string;
    url?: string;
    headers: IncomingHttpHeaders;
    body: string;
  }

  /** A real server on the loopback that keeps what it gets. */
  async function shop(t: TestContext, answer: RequestListener) {
    const seen: Seen[] = [];
    const server = createServer(async (request, response) => {
      let body = "";
      for await (const piece of request) body += piece;
      seen.push({ method: request.method, url: request.url, headers: request.headers, body });
      answer(request, response);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => {
      server.closeAllConnections();
      server.close();
    });
    return { seen, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
  }

  const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  const json: RequestListener = (_request, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end('{"weather":{"celsius":21}}');
  };
  const run = async (t: TestContext, tool: object, body: object) => {
    const service = await serve(t, { tools: { weather: { description: "Weather", parameters, ...tool } }, agents: AGENT });
    return service.post("/tools/weather/execute", body);
  };

  test("POST /tools/:name/execute encodes values for where they stand: path, query, header, JSON body", async (t) => {
    const { seen, url } = await shop(t, json);
    const http = {
      method: "POST",
      url: `${url}/cities/{{ input.city }}`,
      query: { q: "{{ input.city }}", lang: "{{ context.lang }}" },
      headers: { "x-city": "in {{ input.city }}", authorization: "Bearer ${SHOP_KEY:-s3cret}" },
      body: { city: "{{ input.city }}", days: 3 },
    };
    const city = 'São/"Paulo"?&';
    const reply = await run(t, { http, output: "{{ body.weather.celsius }}" }, { input: { city }, context: { lang: "pt" } });
    assert.equal((await dataOf(reply)).result, 21);
    const [request] = seen;
    assert.equal(request!.method, "POST");
    assert.equal(request!.url, `/cities/${encodeURIComponent(city)}?q=${encodeURIComponent(city)}&lang=pt`);
    assert.equal(Buffer.from(request!.headers["x-city"] as string, "latin1").toString("latin1"), `in ${city}`);
    assert.equal(request!.headers.authorization, "Bearer s3cret");
    assert.deepEqual(JSON.parse(request!.body), { city, days: 3 });
  });

  test("POST /tools/:name/execute: without output the result is the body of the answer", async (t) => {
    const { url } = await shop(t, json);
    const reply = await run(t, { http: { method: "GET", url } }, { input: { city: "Lisbon" } });
    assert.deepEqual((await dataOf(reply)).result, { weather: { celsius: 21 } });
  });

  const FAILURES: [title: string, answer: RequestListener, http: object, error: RegExp][] = [
    ["answers 404", (_, response) => response.writeHead(404).end("secret"), {}, /^weather answered 404$/],
    ["answers broken JSON", (_, response) => response.writeHead(200, { "content-type": "application/json" }).end("{"), {}, /^weather answered with broken JSON$/],
    ["answers more than 1 MiB", (_, response) => response.end("x".repeat(1_100_000)), {}, /^weather answered more than 1 MiB$/],
    ["does not answer in time", () => undefined, { timeout: "50ms", retries: 0 }, /^weather did not answer within 50ms$/],
    ["leads to another server", (_, response) => response.writeHead(302, { location: "http://127.0.0.1:1/x" }).end(), {}, /another server, which is not followed$/],
  ];
  for (const [title, answer, http, error] of FAILURES) {
    test(`POST /tools/:name/execute: a server that ${title} is 500, and says so without the server's text`, async (t) => {
      const { url } = await shop(t, answer);
      const reply = await run(t, { http: { method: "GET", url: `${url}/x`, ...http } }, { input: { city: "Lisbon" } });
      assert.equal(reply.headers.get("x-error-code"), "tool_failed");
      const failed = await errorOf(reply);
      assert.equal(failed.status, 500);
      assert.match(failed.error, error);
      assert.doesNotMatch(failed.error, /secret/);
    });
  }

  test("POST /tools/:name/execute: a value that would lead to another path is 500, and nothing is sent", async (t) => {
    const { seen, url } = await shop(t, json);
    const reply = await run(t, { http: { method: "GET", url: `${url}/cities/{{ input.city }}/now` } }, { input: { city: ".." } });
    assert.equal((await errorOf(reply)).status, 500);
    assert.equal(seen.length, 0);
  });

  test("POST /agents/:id/text: a model calls it like any other tool", async (t) => {
    const { url } = await shop(t, json);
    const replies = [{ when: "weather in (.+)", call: { tool: "weather", input: { city: "{{ match[1] }}" } }, then: "{{ result }} degrees" }];
    const service = await serve(t, {
      providers: { demo: { use: "scripted", replies } },
      tools: { weather: { parameters, http: { method: "GET", url }, output: "{{ body.weather.celsius }}" } },
      agents: { assistant: { model: "demo/echo", tools: ["weather"], memory: false } },
    });
    const data: Loose = await dataOf(service.post("/agents/assistant/text", { input: "weather in Lisbon" }));
    assert.equal(data.text, "21 degrees");
    assert.equal(data.toolResults[0].output, 21);
  });
});
