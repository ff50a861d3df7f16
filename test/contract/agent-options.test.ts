/** Contract, "`options` of the generation endpoints": defaults, ranges, precedence, and what reaches the upstream. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { dataOf, errorOf, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

const TEXT = "/agents/assistant/text";

interface Row {
  option: string;
  /** Its name in OpenAI's wire format. */
  wire: string;
  /** Undefined: the row has no default, and nothing is sent. */
  fallback: unknown;
  agent: unknown;
  request: unknown;
  /** The ends of the range. */
  good?: unknown[];
  bad: [value: unknown, error: string][];
}

const between = (name: string, most: number): Row["bad"] => [
  [-0.01, `options.${name} must be >= 0`],
  [most + 0.01, `options.${name} must be <= ${most}`],
  ["1", `options.${name} must be number or null`],
];

const ROWS: Row[] = [
  {
    option: "temperature",
    wire: "temperature",
    fallback: 0.7,
    agent: 0.4,
    request: 0.2,
    good: [0, 1],
    bad: between("temperature", 1),
  },
  {
    option: "maxOutputTokens",
    wire: "max_tokens",
    fallback: 4000,
    agent: 1000,
    request: 50,
    good: [1],
    bad: [
      [0, "options.maxOutputTokens must be >= 1"],
      [1.5, "options.maxOutputTokens must be integer or null"],
    ],
  },
  { option: "topP", wire: "top_p", fallback: 1, agent: 0.9, request: 0.5, good: [0, 1], bad: between("topP", 1) },
  {
    option: "frequencyPenalty",
    wire: "frequency_penalty",
    fallback: 0,
    agent: 0.5,
    request: 1.5,
    good: [0, 2],
    bad: between("frequencyPenalty", 2),
  },
  {
    option: "presencePenalty",
    wire: "presence_penalty",
    fallback: 0,
    agent: 0.5,
    request: 1.5,
    good: [0, 2],
    bad: between("presencePenalty", 2),
  },
  {
    option: "seed",
    wire: "seed",
    fallback: undefined,
    agent: 7,
    request: 42,
    good: [0],
    bad: [[0.5, "options.seed must be integer or null"]],
  },
  {
    option: "stopSequences",
    wire: "stop",
    fallback: undefined,
    agent: ["END"],
    request: ["STOP", "HALT"],
    bad: [
      ["END", "options.stopSequences must be array or null"],
      [[1], "options.stopSequences[0] must be string"],
    ],
  },
];

describe("what reaches the model", () => {
  for (const { option, wire, fallback, agent, request, good = [] } of ROWS) {
    test(`POST /agents/:id/text: options.${option} is the request's, else the agent's, else ${JSON.stringify(fallback) ?? "not sent"}`, async (t) => {
      const agents = { plain: { model: "up/test-model", memory: false } };
      const { service, upstream } = await serveUpstream(t, { options: { [option]: agent } }, { agents });
      const sent = async (id: string, options?: object) => {
        await dataOf(service.post(`/agents/${id}/text`, { input: "x", options }));
        return upstream.requests.at(-1)!.body[wire];
      };
      assert.deepEqual(await sent("plain"), fallback);
      assert.deepEqual(await sent("plain", {}), fallback);
      assert.deepEqual(await sent("assistant"), agent);
      assert.deepEqual(await sent("assistant", { [option]: request }), request);
      assert.deepEqual(await sent("plain", { [option]: request }), request);
      for (const value of good) assert.deepEqual(await sent("assistant", { [option]: value }), value);
    });
  }

  for (const endpoint of ["stream", "chat", "object", "stream-object"]) {
    test(`POST /agents/:id/${endpoint} sends the same options as /text`, async (t) => {
      const { service, upstream } = await serveUpstream(t);
      const options = Object.fromEntries(ROWS.map(({ option, request }) => [option, request]));
      const body = { input: "{}", schema: { type: "object" }, options };
      await (await service.post(`/agents/assistant/${endpoint}`, body)).text();
      for (const { wire, request } of ROWS) assert.deepEqual(upstream.requests[0]!.body[wire], request, wire);
    });
  }

  test("POST /agents/:id/text: each option falls back by itself, not the options as a whole", async (t) => {
    const { service, upstream } = await serveUpstream(t, { options: { temperature: 0.1, topP: 0.2 } });
    await dataOf(service.post(TEXT, { input: "x", options: { topP: 0.3, seed: 1 } }));
    const { temperature, top_p, seed, max_tokens } = upstream.requests[0]!.body;
    assert.deepEqual(
      { temperature, top_p, seed, max_tokens },
      { temperature: 0.1, top_p: 0.3, seed: 1, max_tokens: 4000 },
    );
  });

  test("POST /agents/:id/text: options.providerOptions reaches the provider that it is keyed by, and no other", async (t) => {
    const agent = { options: { providerOptions: { up: { user: "agent" } } }, allowProviderOptions: ["up", "other"] };
    const { service, upstream } = await serveUpstream(t, agent);
    await dataOf(service.post(TEXT, { input: "x" }));
    assert.equal(upstream.requests[0]!.body.user, "agent");
    const providerOptions = { up: { reasoningEffort: "low", top_k: 3 }, other: { flavour: "mint" } };
    await dataOf(service.post(TEXT, { input: "x", options: { providerOptions } }));
    const { body } = upstream.requests[1]!;
    assert.equal(body.reasoning_effort, "low");
    assert.equal(body.top_k, 3);
    assert.doesNotMatch(JSON.stringify(body), /mint|flavour/);
  });

  test("POST /agents/:id/text: unknown options are ignored and never reach the provider", async (t) => {
    const { service, upstream } = await serveUpstream(t);
    const options = {
      logit_bias: { a: 1 },
      n: 5,
      tools: [],
      headers: { a: "b" },
      abortSignal: 1,
      topK: 3,
      temperature: 0.5,
    };
    await dataOf(service.post(TEXT, { input: "x", n: 7, options }));
    const { model, messages, stream, stream_options, ...rest } = upstream.requests[0]!.body;
    assert.deepEqual(rest, { temperature: 0.5, max_tokens: 4000, top_p: 1, frequency_penalty: 0, presence_penalty: 0 });
    assert.equal(upstream.requests[0]!.headers.a, undefined);
  });

  test("POST /agents/:id/text: options.output with a schema is OpenAI's response_format", async (t) => {
    const { service, upstream } = await serveUpstream(t);
    const schema = {
      type: "object",
      properties: { n: { type: "number" } },
      required: ["n"],
      additionalProperties: false,
    };
    await dataOf(service.post(TEXT, { input: '{"n":1}', options: { output: { type: "object", schema } } }));
    const { response_format } = upstream.requests[0]!.body;
    assert.equal(response_format.type, "json_schema");
    assert.deepEqual(response_format.json_schema.schema, schema);
    assert.equal(response_format.json_schema.strict, true);
  });
});

const EXTRA: [option: string, value: unknown, error: string][] = [
  ["maxSteps", 0, "options.maxSteps must be >= 1"],
  ["maxSteps", 101, "options.maxSteps must be <= 100"],
  ["providerOptions", { up: 1 }, "options.providerOptions.up must be object"],
  ["providerOptions", [], "options.providerOptions must be object"],
  ["context", "en", "options.context must be object"],
  ["output", { type: "xml" }, 'options.output.type must be one of "text", "object"'],
  ["output", {}, "options.output.type is required"],
  ["memory", { userId: 5 }, "options.memory.userId must be string"],
  ["memory", { conversationId: "" }, "options.memory.conversationId must NOT have fewer than 1 characters"],
  ["memory", { options: { contextLimit: -1 } }, "options.memory.options.contextLimit must be >= 0"],
  ["memory", { options: { readOnly: "yes" } }, "options.memory.options.readOnly must be boolean"],
  [
    "memory",
    { options: { semanticMemory: { semanticThreshold: 1.1 } } },
    "options.memory.options.semanticMemory.semanticThreshold must be <= 1",
  ],
  [
    "memory",
    { options: { semanticMemory: { mergeStrategy: "shuffle" } } },
    'options.memory.options.semanticMemory.mergeStrategy must be one of "prepend", "append", "interleave"',
  ],
  [
    "memory",
    { options: { conversationPersistence: { mode: "never" } } },
    'options.memory.options.conversationPersistence.mode must be one of "step", "finish"',
  ],
  ["userId", 5, "options.userId must be string"],
  ["conversationId", 5, "options.conversationId must be string"],
  ["contextLimit", 0.5, "options.contextLimit must be integer"],
  ["semanticMemory", { semanticLimit: -1 }, "options.semanticMemory.semanticLimit must be >= 0"],
  ["semanticMemory", { enabled: 1 }, "options.semanticMemory.enabled must be boolean"],
  ["conversationPersistence", { debounceMs: -1 }, "options.conversationPersistence.debounceMs must be >= 0"],
  [
    "conversationPersistence",
    { flushOnToolResult: 0 },
    "options.conversationPersistence.flushOnToolResult must be boolean",
  ],
];

describe("options out of range", () => {
  const bad = [
    ...ROWS.flatMap(({ option, bad }) => bad.map(([value, error]) => [option, value, error] as const)),
    ...EXTRA,
  ];
  for (const [option, value, error] of bad) {
    test(`POST /agents/:id/text: options.${option} of ${JSON.stringify(value)} is 400 and named`, async (t) => {
      const service = await startService(t, manifestWith());
      const answer = await errorOf(service.post(TEXT, { input: "x", options: { [option]: value } }));
      assert.deepEqual(answer, { status: 400, error });
    });
  }

  for (const endpoint of ["stream", "chat", "object", "stream-object"]) {
    test(`POST /agents/:id/${endpoint} checks the options before it answers anything`, async (t) => {
      const service = await startService(t, manifestWith());
      const body = { input: "x", schema: { type: "object" }, options: { temperature: 1.2 } };
      const answer = await errorOf(service.post(`/agents/assistant/${endpoint}`, body));
      assert.deepEqual(answer, { status: 400, error: "options.temperature must be <= 1" });
    });
  }
});

describe("memory options", () => {
  test("POST /agents/:id/text takes every row of the table, in the envelope and in the deprecated form", async (t) => {
    const service = await startService(t, manifestWith());
    const rows = {
      contextLimit: 0,
      semanticMemory: { enabled: false, semanticLimit: 5, semanticThreshold: 0.7, mergeStrategy: "interleave" },
      conversationPersistence: { mode: "finish", debounceMs: 0, flushOnToolResult: false },
    };
    const memory = { userId: "u", conversationId: "c", options: { ...rows, readOnly: true } };
    const options = { memory, userId: "u", conversationId: "c", ...rows };
    assert.equal((await dataOf(service.post(TEXT, { input: "x", options }))).text, "x");
  });

  test("POST /agents/:id/text: memory.userId and memory.conversationId beat the deprecated fields, each alone", async (t) => {
    const service = await startService(t, manifestWith());
    const recorded = async (options: object) => {
      await dataOf(service.post(TEXT, { input: "x", options }));
      const { userId, conversationId } = (await dataOf(service.get("/agents/assistant/history"))).entries[0];
      return [userId, conversationId];
    };
    assert.deepEqual(await recorded({ userId: "old", conversationId: "old" }), ["old", "old"]);
    const memory = { userId: "new", conversationId: "new" };
    assert.deepEqual(await recorded({ userId: "old", conversationId: "old", memory }), ["new", "new"]);
    assert.deepEqual(await recorded({ userId: "old", conversationId: "old", memory: { userId: "new" } }), [
      "new",
      "old",
    ]);
  });
});
