/** What an agent lets requests ask for: null, the largest values of options, and provider options. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";

const TEXT = "/agents/assistant/text";
const SAMPLING = {
  temperature: "temperature",
  maxOutputTokens: "max_tokens",
  topP: "top_p",
  frequencyPenalty: "frequency_penalty",
  presencePenalty: "presence_penalty",
  seed: "seed",
  stopSequences: "stop",
};
const NOTHING = Object.fromEntries(Object.keys(SAMPLING).map((option) => [option, null]));

const ENDPOINTS = ["text", "stream", "chat", "object", "stream-object"];

describe("null", () => {
  for (const endpoint of ENDPOINTS) {
    test(`POST /agents/:id/${endpoint}: null for an option of the model sends the provider nothing`, async (t) => {
      const { service, upstream } = await serveUpstream(t, {
        options: { temperature: 0.5, seed: 1, stopSequences: ["a"] },
      });
      const body = { input: "{}", schema: { type: "object" }, options: NOTHING };
      const reply = await service.post(`/agents/assistant/${endpoint}`, body);
      assert.equal(reply.status, 200, await reply.text());
      const sent = Object.keys(upstream.requests[0]!.body);
      for (const wire of Object.values(SAMPLING)) assert.ok(!sent.includes(wire), wire);
    });
  }

  test("POST /agents/:id/text: null in the agent's options sends the provider nothing, and a request may still set a value", async (t) => {
    const { service, upstream } = await serveUpstream(t, { options: NOTHING });
    await dataOf(service.post(TEXT, { input: "x" }));
    await dataOf(service.post(TEXT, { input: "x", options: { temperature: 0.3 } }));
    const [silent, asked] = upstream.requests.map(({ body }) => body);
    for (const wire of Object.values(SAMPLING)) assert.ok(!(wire in silent), wire);
    assert.equal(asked.temperature, 0.3);
    assert.ok(!("max_tokens" in asked));
  });

  test("POST /agents/:id/text: maxSteps and providerOptions cannot be null", async (t) => {
    const { service } = await serveUpstream(t);
    for (const [option, problem] of [
      ["maxSteps", "options.maxSteps must be integer"],
      ["providerOptions", "options.providerOptions must be object"],
    ] as const)
      assert.deepEqual(await errorOf(service.post(TEXT, { input: "x", options: { [option]: null } })), {
        status: 400,
        error: problem,
      });
  });

  test("a workflow's andAgent step and POST /mcp/servers/:serverId/tools/agent_:id take null from the agent's options", async (t) => {
    const { service, upstream } = await serveUpstream(
      t,
      { options: NOTHING },
      {
        mcp: { servers: { main: { agents: ["assistant"] } } },
        workflows: { flow: { steps: [{ id: "ask", andAgent: { agent: "assistant", prompt: "hello" } }] } },
      },
    );
    await dataOf(service.post("/workflows/flow/execute", { input: {} }));
    const called = await service.post("/mcp/servers/main/tools/agent_assistant", { arguments: { prompt: "hello" } });
    assert.equal(called.status, 200, await called.text());
    assert.equal(upstream.requests.length, 2);
    for (const { body } of upstream.requests)
      for (const wire of Object.values(SAMPLING)) assert.ok(!(wire in body), wire);
  });

  test("GET /doc says which options may be null", async (t) => {
    const { service } = await serveUpstream(t);
    const document = (await (await service.get("/doc")).json()) as Loose;
    const { properties } = document.components.schemas.GenerateOptions;
    for (const option of Object.keys(SAMPLING)) assert.equal(properties[option].type[1], "null", option);
    assert.equal(properties.maxSteps.type, "integer");
  });
});

describe("{default, max}", () => {
  const BOUNDED = {
    maxSteps: { default: 2, max: 3 },
    options: {
      maxOutputTokens: { default: 100, max: 200 },
      temperature: { max: 0.5 },
      topP: { default: null, max: 0.9 },
      seed: { max: 10 },
    },
  };

  test("POST /agents/:id/text: an agent's default is sent, without one the usual value up to its max", async (t) => {
    const { service, upstream } = await serveUpstream(t, BOUNDED);
    await dataOf(service.post(TEXT, { input: "x" }));
    const { max_tokens, temperature, ...rest } = upstream.requests[0]!.body;
    assert.deepEqual({ max_tokens, temperature }, { max_tokens: 100, temperature: 0.5 });
    assert.ok(!("top_p" in rest) && !("seed" in rest));
    await dataOf(service.post(TEXT, { input: "x", options: { maxOutputTokens: 200, topP: 0.9, maxSteps: 3 } }));
    assert.equal(upstream.requests[1]!.body.max_tokens, 200);
    assert.equal(upstream.requests[1]!.body.top_p, 0.9);
  });

  for (const endpoint of ENDPOINTS) {
    test(`POST /agents/:id/${endpoint}: an option above the agent's max, or null where there is one, is 400 naming both`, async (t) => {
      const { service, upstream } = await serveUpstream(t, BOUNDED);
      for (const [options, error] of [
        [{ maxSteps: 4 }, "options.maxSteps must be <= 3, which is the limit of this agent"],
        [{ maxOutputTokens: 201 }, "options.maxOutputTokens must be <= 200, which is the limit of this agent"],
        [{ temperature: 0.6 }, "options.temperature must be <= 0.5, which is the limit of this agent"],
        [{ maxOutputTokens: null }, "options.maxOutputTokens must not be null: this agent limits it to 200"],
        [{ topP: null }, "options.topP must not be null: this agent limits it to 0.9"],
      ] as const) {
        const body = { input: "x", schema: { type: "object" }, options };
        assert.deepEqual(await errorOf(service.post(`/agents/assistant/${endpoint}`, body)), { status: 400, error });
      }
      assert.equal(upstream.requests.length, 0);
    });
  }
});

describe("provider options of requests", () => {
  test("POST /agents/:id/text: providerOptions that the agent does not list are 400 naming the path", async (t) => {
    const { service, upstream } = await serveUpstream(t, { allowProviderOptions: ["up.reasoningEffort", "other"] });
    for (const [providerOptions, error] of [
      [
        { up: { user: "x" } },
        "options.providerOptions.up.user is not allowed: this agent takes from requests only options.providerOptions.up.reasoningEffort",
      ],
      [
        { openai: {} },
        "options.providerOptions.openai is not allowed: this agent takes from requests only options.providerOptions.up, options.providerOptions.other",
      ],
      [
        JSON.parse('{"__proto__": {"a": 1}}'),
        "options.providerOptions.__proto__ is not allowed: this agent takes from requests only options.providerOptions.up, options.providerOptions.other",
      ],
    ] as const)
      assert.deepEqual(await errorOf(service.post(TEXT, { input: "x", options: { providerOptions } })), {
        status: 400,
        error,
      });
    assert.equal(upstream.requests.length, 0);
  });

  for (const endpoint of ENDPOINTS) {
    test(`POST /agents/:id/${endpoint}: an agent that lists no providerOptions takes none from requests`, async (t) => {
      const { service } = await serveUpstream(t);
      const body = { input: "x", schema: { type: "object" }, options: { providerOptions: { up: { user: "x" } } } };
      assert.deepEqual(await errorOf(service.post(`/agents/assistant/${endpoint}`, body)), {
        status: 400,
        error: "options.providerOptions.up is not allowed: this agent takes no provider options from requests",
      });
    });
  }

  test("POST /agents/:id/text: what the agent lists is merged over its own providerOptions, option by option", async (t) => {
    const agent = {
      options: { providerOptions: { up: { user: "agent", reasoningEffort: "high" } } },
      allowProviderOptions: ["up.reasoningEffort"],
    };
    const { service, upstream } = await serveUpstream(t, agent);
    const providerOptions = { up: { reasoningEffort: "low" } };
    await dataOf(service.post(TEXT, { input: "x", options: { providerOptions } }));
    const { user, reasoning_effort } = upstream.requests[0]!.body;
    assert.deepEqual({ user, reasoning_effort }, { user: "agent", reasoning_effort: "low" });
  });

  const CACHED = { anthropic: { cacheControl: { type: "ephemeral" } } };
  const INPUTS = {
    message: [[{ role: "user", content: "x", providerOptions: CACHED }], "input[0].providerOptions"],
    part: [
      [{ role: "user", content: [{ type: "text", text: "x", providerOptions: CACHED }] }],
      "input[0].content[0].providerOptions",
    ],
    "part of a UI message": [
      [{ role: "user", parts: [{ type: "text", text: "x", providerOptions: CACHED }] }],
      "input[0].parts[0].providerOptions",
    ],
    "part of a UI message, as providerMetadata,": [
      [{ role: "user", parts: [{ type: "text", text: "x", providerMetadata: CACHED }] }],
      "input[0].parts[0].providerMetadata",
    ],
    "tool's result": [
      [
        { role: "user", content: "x" },
        { role: "assistant", content: [{ type: "tool-call", toolCallId: "1", toolName: "a", input: {} }] },
        {
          role: "tool",
          content: [
            {
              type: "tool-result",
              toolCallId: "1",
              toolName: "a",
              output: { type: "content", value: [{ type: "text", text: "x", providerOptions: CACHED }] },
            },
          ],
        },
      ],
      "input[2].content[0].output.value[0].providerOptions",
    ],
  } as const;

  for (const [where, [input, path]] of Object.entries(INPUTS)) {
    test(`POST /agents/:id/text: providerOptions of a ${where} are taken only where the agent lists them`, async (t) => {
      const { service } = await serveUpstream(
        t,
        {},
        {
          agents: { open: { model: "up/test-model", memory: false, allowProviderOptions: ["anthropic.cacheControl"] } },
        },
      );
      assert.deepEqual(await errorOf(service.post(TEXT, { input })), {
        status: 400,
        error: `${path}.anthropic is not allowed: this agent takes no provider options from requests`,
      });
      await dataOf(service.post("/agents/open/text", { input }));
    });
  }

  test("POST /agents/:id/text: what a provider gave with the parts of an answer may be sent back to it", async (t) => {
    const { service } = await serveUpstream(t);
    const signed = { anthropic: { signature: "s" } };
    const question = { role: "user", content: "x" };
    for (const answer of [
      { role: "assistant", content: [{ type: "text", text: "a", providerOptions: signed }] },
      { role: "assistant", parts: [{ type: "text", text: "a", providerMetadata: signed }] },
    ])
      await dataOf(service.post(TEXT, { input: [question, answer, question] }));
  });

  const EXTRAS = { openaiCompatible: { cache_control: { type: "ephemeral" } }, google: { thoughtSignature: "s" } };
  const EXCHANGE = [
    { role: "user", content: "look it up" },
    {
      role: "assistant",
      parts: [
        {
          type: "tool-find",
          toolCallId: "1",
          state: "output-available",
          input: {},
          output: 1,
          callProviderMetadata: EXTRAS,
          resultProviderMetadata: EXTRAS,
        },
      ],
    },
  ];
  const QUESTION = { role: "user", content: "and now?" };
  const OPEN = { open: { model: "up/test-model", allowProviderOptions: ["openaiCompatible.cache_control"] } };

  test("POST /agents/:id/text: under the parts of an answer a client sends back signatures, but asks for no cache", async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, { agents: OPEN });
    const input = [...EXCHANGE, QUESTION];
    for (const agent of ["assistant", "open"]) await dataOf(service.post(`/agents/${agent}/text`, { input }));
    const [gated, open] = upstream.requests.map(({ body }) =>
      body.messages.filter(({ role }: Loose) => role === "assistant" || role === "tool"),
    );
    assert.equal(gated[0].tool_calls[0].extra_content.google.thought_signature, "s");
    assert.ok(!JSON.stringify(gated).includes("cache_control"));
    assert.ok(open[0].tool_calls[0].cache_control);
    assert.ok(open[1].cache_control);
  });

  test("POST /api/memory/save-messages: options of stored messages reach a provider only where the agent lists them", async (t) => {
    const agents = { open: { ...OPEN.open, memory: "default" } };
    const { service, upstream } = await serveUpstream(t, { memory: "default" }, { agents, memory: { default: {} } });
    const conversationId = "c";
    await service.post("/api/memory/conversations", { conversationId, userId: "ada", resourceId: "assistant" });
    const stored = [
      { role: "user", content: [{ type: "text", text: "x", providerOptions: EXTRAS }] },
      { ...EXCHANGE[1] },
    ];
    const messages = stored.map((message) => ({ ...message, conversationId, userId: "ada" }));
    await dataOf(service.post("/api/memory/save-messages", { messages }));
    const memory = { userId: "ada", conversationId, options: { readOnly: true } };
    for (const agent of ["assistant", "open"])
      await dataOf(service.post(`/agents/${agent}/text`, { input: "and now?", options: { memory } }));
    const [gated, open] = upstream.requests.map(({ body }) => JSON.stringify(body.messages));
    assert.ok(!gated!.includes("cache_control"), gated);
    assert.match(gated!, /thought_signature/);
    assert.equal(open!.split("cache_control").length - 1, 3, open);
  });

  test("POST /agents/:id/chat: a chat hook's messages are named in the error as it sent them", async (t) => {
    const { service } = await serveUpstream(t);
    const messages = [{ id: "1", role: "user", parts: [{ type: "text", text: "x", providerOptions: CACHED }] }];
    const { status, error } = await errorOf(service.post("/agents/assistant/chat", { messages }));
    assert.equal(status, 400);
    assert.match(error, /^messages\[0\]\.parts\[0\]\.providerOptions\.anthropic is not allowed/);
  });
});
