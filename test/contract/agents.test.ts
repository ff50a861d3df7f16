/** Contract, "Agents": every row of the table, and the resources that the rows answer with. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { EventReader, eventually } from "../support/event-reader.ts";
import { calls, says, stallsAfter, stallsBeforeHead } from "../support/openai-upstream.ts";
import { dataOf, errorOf, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, parseEvents, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const TEXT = "/agents/assistant/text";
const CITY = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const ADD_PARAMETERS = {
  type: "object",
  properties: { a: { type: "number" }, b: { type: "number" } },
  required: ["a", "b"],
  additionalProperties: false,
};

const TWO_AGENTS = {
  tools: { sum: { use: "add" } },
  agents: {
    desk: {
      name: "Desk",
      description: "Answers",
      instructions: "The secret word is plover.",
      model: ["demo/echo", "demo/other"],
      tools: ["sum"],
      subAgents: ["writer"],
      memory: false,
    },
    writer: { model: "demo/other", memory: false },
  },
  providers: { demo: { use: "scripted", models: { other: {} } } },
};

const WRITER = { id: "writer", name: "writer", description: "", status: "idle", model: "demo/other" };
const DESK = {
  id: "desk",
  name: "Desk",
  description: "Answers",
  status: "idle",
  model: "demo/echo",
  subAgents: [WRITER],
  memory: null,
  isTelemetryEnabled: true,
};

for (const transport of TRANSPORTS) {
  describe(`over ${transport}`, () => {
    const manifest = (rest: object = TWO_AGENTS) => manifestWith({}, { server: { transport }, ...rest });

    test("GET /agents lists every agent with its tools as {name, description, parameters} and its sub-agents", async (t) => {
      const service = await startService(t, manifest());
      const tools = [{ name: "sum", description: "Adds two numbers", parameters: ADD_PARAMETERS }];
      assert.deepEqual(await dataOf(service.get("/agents")), [
        { ...DESK, tools },
        { ...WRITER, tools: [], subAgents: [], memory: null, isTelemetryEnabled: true },
      ]);
    });

    test("GET /agents/:id gives the detail, with names for tools, and never the instructions", async (t) => {
      const service = await startService(t, manifest());
      const reply = await service.get("/agents/desk");
      const text = await reply.text();
      assert.deepEqual(JSON.parse(text), { success: true, data: { ...DESK, tools: ["sum"] } });
      assert.doesNotMatch(text + (await (await service.get("/agents")).text()), /plover|instructions/);
    });

    for (const path of ["/agents", "/agents/desk", "/agents/desk/history"]) {
      test(`HEAD ${path} has the status and headers of GET, and no body`, async (t) => {
        const service = await startService(t, manifest());
        const get = await service.get(path);
        const body = await get.arrayBuffer();
        const head = await fetch(service.url + path, { method: "HEAD" });
        assert.equal(head.status, 200);
        assert.equal(head.headers.get("content-type"), get.headers.get("content-type"));
        assert.equal(head.headers.get("content-length"), String(body.byteLength));
        assert.equal((await head.arrayBuffer()).byteLength, 0);
      });
    }

    test("POST /agents/:id/text answers in the envelope with exactly the fields of a text result", async (t) => {
      const service = await startService(t, manifest());
      const reply = await service.post("/agents/desk/text", { input: "two words" });
      assert.equal(reply.status, 200);
      assert.deepEqual(await reply.json(), {
        success: true,
        data: {
          text: "two words",
          // The scripted model counts words: 5 of the instructions and 2 of the user.
          usage: {
            promptTokens: 7,
            completionTokens: 2,
            totalTokens: 9,
            cachedInputTokens: 0,
            reasoningTokens: 0,
            inputTokens: 7,
            outputTokens: 2,
          },
          model: "demo/echo",
          finishReason: "stop",
          toolCalls: [],
          toolResults: [],
        },
      });
    });

    test("POST /agents/:id/object gives the object itself as data", async (t) => {
      const service = await startService(t, manifest());
      const body = { input: '{"city":"Lisbon"}', schema: CITY };
      assert.deepEqual(await (await service.post("/agents/desk/object", body)).json(), {
        success: true,
        data: { city: "Lisbon" },
      });
    });

    for (const row of ["stream", "chat", "stream-object"]) {
      test(`POST /agents/:id/${row} answers with server-sent events, each of them JSON`, async (t) => {
        const service = await startService(t, manifest());
        const reply = await service.post(`/agents/desk/${row}`, { input: '{"city":"Lisbon"}', schema: CITY });
        assert.equal(reply.status, 200);
        assert.match(reply.headers.get("content-type") ?? "", /^text\/event-stream/);
        const events = parseEvents(await reply.text()).filter(({ data }) => data !== "[DONE]");
        assert.ok(events.length > 0);
        for (const { data } of events) assert.equal(typeof JSON.parse(data).type, "string");
      });
    }
  });
}

const ROWS: [method: "get" | "post", path: string][] = [
  ["get", "/agents/nobody"],
  ["post", "/agents/nobody/text"],
  ["post", "/agents/nobody/stream"],
  ["post", "/agents/nobody/chat"],
  ["post", "/agents/nobody/object"],
  ["post", "/agents/nobody/stream-object"],
  ["get", "/agents/nobody/history"],
];

for (const [method, path] of ROWS) {
  test(`${method.toUpperCase()} ${path.replace("nobody", ":id")} of an unknown agent is 404, a plain reply`, async (t) => {
    const service = await startService(t, manifestWith());
    const reply = await service[method](path, { input: "x", schema: CITY } as never);
    assert.match(reply.headers.get("content-type") ?? "", /^application\/json/);
    assert.deepEqual(await errorOf(reply), { status: 404, error: 'agent "nobody" does not exist' });
  });
}

test("POST /agents/:id/text takes usage from the provider's numbers, with cached and reasoning tokens", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  upstream.replies(says("Hi", { usage: { prompt: 100, completion: 20, cached: 64, reasoning: 12 } }));
  const { usage } = await dataOf(service.post(TEXT, { input: "x" }));
  assert.deepEqual(usage, {
    promptTokens: 100,
    completionTokens: 20,
    totalTokens: 120,
    cachedInputTokens: 64,
    reasoningTokens: 12,
    inputTokens: 100,
    outputTokens: 20,
  });
});

test("POST /agents/:id/text: usage has seven numbers, 0 where the provider says nothing", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  upstream.replies(says("Hi", { usage: null }));
  const { usage } = await dataOf(service.post(TEXT, { input: "x" }));
  assert.deepEqual(usage, {
    promptTokens: 0,
    completionTokens: 0,
    totalTokens: 0,
    cachedInputTokens: 0,
    reasoningTokens: 0,
    inputTokens: 0,
    outputTokens: 0,
  });
});

const FINISH_REASONS = {
  stop: "stop",
  length: "length",
  content_filter: "content-filter",
  // Without a call there is nothing to go on with.
  tool_calls: "stop",
  eos_token: "stop",
  surprise: "other",
};
for (const [sent, finishReason] of Object.entries(FINISH_REASONS)) {
  test(`POST /agents/:id/text: the provider's finish reason ${sent} is ${finishReason}`, async (t) => {
    const { service, upstream } = await serveUpstream(t);
    upstream.replies(says("Hi", { finishReason: sent }));
    assert.equal((await dataOf(service.post(TEXT, { input: "x" }))).finishReason, finishReason);
  });
}

test("POST /agents/:id/text lists the tool calls and results of all steps in order, and sums usage over them, cached and reasoning tokens too", async (t) => {
  const { service, upstream } = await serveUpstream(t, { tools: ["sum"] }, { tools: { sum: { use: "add" } } });
  const first = { id: "c1", name: "sum", input: { a: 1, b: 2 } };
  const second = { id: "c2", name: "sum", input: { a: 3, b: 4 } };
  const usage = { prompt: 10, completion: 8, cached: 6, reasoning: 3 };
  upstream.replies(calls([first], { usage }), calls([second], { usage }), says("Done.", { usage }));
  const data = await dataOf(service.post(TEXT, { input: "add" }));
  const call = (toolCallId: string, input: object) => ({ type: "tool-call", toolCallId, toolName: "sum", input });
  assert.equal(data.text, "Done.");
  assert.deepEqual(data.toolCalls, [call("c1", first.input), call("c2", second.input)]);
  assert.deepEqual(data.toolResults, [
    { ...call("c1", first.input), type: "tool-result", output: { sum: 3 } },
    { ...call("c2", second.input), type: "tool-result", output: { sum: 7 } },
  ]);
  assert.deepEqual(data.usage, {
    promptTokens: 30,
    completionTokens: 24,
    totalTokens: 54,
    cachedInputTokens: 18,
    reasoningTokens: 9,
    inputTokens: 30,
    outputTokens: 24,
  });
});

test("GET /agents and GET /agents/:id say working while a call runs, for sub-agents too, and idle after it", async (t) => {
  const agents = { boss: { model: "up/test-model", subAgents: ["assistant"], memory: false } };
  const { service, upstream } = await serveUpstream(t, {}, { agents });
  const status = async () => {
    const [assistant, boss] = await dataOf(service.get("/agents"));
    const detail = await dataOf(service.get("/agents/assistant"));
    return [assistant.status, boss.subAgents[0].status, detail.status, boss.status];
  };
  assert.deepEqual(await status(), ["idle", "idle", "idle", "idle"]);
  upstream.replies(stallsAfter("Well"), stallsBeforeHead());
  const readers: EventReader[] = [];
  for (const index of [0, 1]) {
    readers.push(new EventReader(`${service.url}/agents/assistant/stream`, { input: "x" }));
    await upstream.request(index);
  }
  assert.deepEqual(await status(), ["working", "working", "working", "idle"]);
  readers[0]!.leave();
  await upstream.requests[0]!.aborted;
  assert.deepEqual(await status(), ["working", "working", "working", "idle"], "one of two calls still runs");
  readers[1]!.leave();
  await eventually(async () => (await status()).every((each) => each === "idle"), "idle");
});
