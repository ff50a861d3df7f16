/** What the openai-compatible provider does when a server refuses a parameter, a response format, or to answer. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { LanguageModelV3CallOptions } from "@ai-sdk/provider";
import { pino } from "pino";
import openaiCompatible from "../../../core/models/openai-compatible/openai-compatible.ts";
import { isBatched } from "../../../core/models/part-source.ts";
import { LearnedModes, withStructuredOutput } from "../../../core/models/structured-output.ts";
import { toStreamingModel } from "../../../core/models/versions/versions.ts";
import { ModelRefusal, type ModelSettings } from "../../../core/plugin/plugin.ts";
import { createInstance } from "../../../core/registry/create.ts";
import { createHost } from "../../../core/registry/host.ts";
import { upstreamFor } from "../../support/openai-provider.ts";
import { type Reply, says, type UpstreamRequest } from "../../support/openai-upstream.ts";
import { ask, settingsOf } from "../../support/providers.ts";

const SAMPLING = { maxOutputTokens: 50, temperature: 0.7, topP: 1, frequencyPenalty: 0, presencePenalty: 0 };
const SENT = ["max_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty"];

async function setUp(
  context: TestContext,
  judge: (request: UpstreamRequest) => Reply | null = () => null,
  config: object = {},
) {
  const upstream = await upstreamFor(context);
  upstream.fallback((request) => judge(request) ?? says('{"a":1}'));
  const lines: Record<string, unknown>[] = [];
  const logger = pino({}, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const host = createHost({ logger, env: {} });
  context.after(() => host.close());
  const provider = await createInstance(
    openaiCompatible,
    { baseURL: upstream.baseURL, ...config },
    { ...host, name: "demo" },
  );
  const learned = new LearnedModes();
  const call = async (
    model: string,
    options: Partial<LanguageModelV3CallOptions>,
    settings?: Partial<ModelSettings>,
  ) => {
    const given = settingsOf(settings);
    const name = `demo/${model}`;
    const asked = withStructuredOutput(toStreamingModel(provider.languageModel(model, given)), {
      name,
      setting: given.structuredOutput,
      learned,
      logger,
    });
    const result = await asked.doStream(ask("hi", options));
    assert.ok(isBatched(result));
    while ((await result.batches.next()) !== null);
    return upstream.requests.at(-1)!.body;
  };
  return { upstream, lines, call };
}

const refusal = (error: object): Reply => ({
  status: 400,
  json: { error: { type: "invalid_request_error", ...error } },
});

for (const model of ["gpt-5", "gpt-5-mini-2025-08-07", "o1", "o3-mini", "o4-mini", "openai/gpt-5", "eu/openai/o3"]) {
  test(`${model} is sent max_completion_tokens and no sampling parameters, with the first request`, async (context) => {
    const { upstream, call } = await setUp(context);
    const body = await call(model, SAMPLING);
    assert.equal(body.max_completion_tokens, 50);
    for (const name of SENT) assert.equal(body[name], undefined, name);
    assert.equal(upstream.requests.length, 1);
  });
}

for (const model of ["gpt-4o", "o100/llama", "turbo3", "my-gpt-5", "gpt-4-o1"]) {
  test(`${model} is no reasoning model by its name: it is sent what was asked for`, async (context) => {
    const { call } = await setUp(context);
    const body = await call(model, SAMPLING);
    for (const name of SENT) assert.notEqual(body[name], undefined, name);
  });
}

test("parameters.omit and parameters.rename of the manifest change what is sent, but never the model or the messages", async (context) => {
  const { call } = await setUp(context);
  const parameters = {
    omit: ["top_p", "messages", "model"],
    rename: { max_tokens: "max_new_tokens", temperature: "t" },
  };
  const body = await call("llama", SAMPLING, { parameters });
  assert.equal(body.max_new_tokens, 50);
  assert.equal(body.t, 0.7);
  assert.deepEqual([body.max_tokens, body.temperature, body.top_p], [undefined, undefined, undefined]);
  assert.equal(body.model, "llama");
  assert.equal(body.messages.length, 1);
});

test("the manifest's rename has precedence over what is known of gpt-5 by its name", async (context) => {
  const { call } = await setUp(context);
  const parameters = { omit: [], rename: { max_tokens: "max_tokens", temperature: "temperature" } };
  const body = await call("gpt-5", SAMPLING, { parameters });
  assert.equal(body.max_tokens, 50);
  assert.equal(body.temperature, 0.7);
  assert.equal(body.top_p, undefined);
});

/** What servers say of a parameter that they do not take, each in its own way. */
const COMPLAINTS: [string, string, unknown][] = [
  [
    "OpenAI, of a value",
    "temperature",
    {
      error: {
        message:
          "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported.",
        type: "invalid_request_error",
        param: "temperature",
        code: "unsupported_value",
      },
    },
  ],
  [
    "OpenAI, of a parameter",
    "presence_penalty",
    {
      error: {
        message: "Unsupported parameter: 'presence_penalty' is not supported with this model.",
        param: "presence_penalty",
        code: "unsupported_parameter",
      },
    },
  ],
  [
    "Azure",
    "stream_options",
    {
      error: {
        message: "Unrecognized request argument supplied: stream_options",
        type: "invalid_request_error",
        param: null,
        code: null,
      },
    },
  ],
  [
    "Mistral",
    "frequency_penalty",
    {
      object: "error",
      message: {
        detail: [
          {
            type: "extra_forbidden",
            loc: ["body", "frequency_penalty"],
            msg: "Extra inputs are not permitted",
            input: 0,
          },
        ],
      },
    },
  ],
  [
    "FastAPI",
    "seed",
    {
      detail: [
        {
          type: "extra_forbidden",
          loc: ["body", "seed"],
          msg: "Extra inputs are not permitted",
          input: { temperature: 0.7 },
        },
      ],
    },
  ],
  [
    "Gemini",
    "frequency_penalty",
    [
      {
        error: {
          code: 400,
          message: 'Invalid JSON payload received. Unknown name "frequency_penalty": Cannot find field.',
          status: "INVALID_ARGUMENT",
        },
      },
    ],
  ],
  [
    "xAI, in camel case",
    "presence_penalty",
    { code: "Client specified an invalid argument", error: "Model grok-4 does not support parameter presencePenalty." },
  ],
  [
    "Anthropic",
    "top_p",
    {
      error: {
        message: "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        type: "invalid_request_error",
      },
    },
  ],
];

for (const [server, parameter, json] of COMPLAINTS) {
  test(`a 400 in the words of ${server} is repeated once without ${parameter}, which is remembered and logged once`, async (context) => {
    const { upstream, lines, call } = await setUp(context, ({ body }) =>
      body[parameter] === undefined ? null : { status: 400, json },
    );
    const options = { ...SAMPLING, seed: 3 };
    const body = await call("m", options);
    assert.equal(body[parameter], undefined);
    for (const name of [...SENT, "seed", "stream_options"])
      if (name !== parameter) assert.notEqual(body[name], undefined, `${name} is still sent`);
    await call("m", options);
    assert.equal(upstream.requests.length, 3);
    assert.deepEqual(
      lines.map((line) => [line.model, line.parameter, line.level]),
      [["demo/m", parameter, 40]],
    );
    await call("another", options);
    assert.equal(upstream.requests.length, 5);
  });
}

test("a 400 that wants max_completion_tokens gets the limit under that name from then on", async (context) => {
  const message =
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
  const { upstream, call } = await setUp(context, ({ body }) =>
    body.max_tokens === undefined ? null : refusal({ message, param: "max_tokens", code: "unsupported_parameter" }),
  );
  assert.equal((await call("reasoner", SAMPLING)).max_completion_tokens, 50);
  assert.equal((await call("reasoner", SAMPLING)).max_completion_tokens, 50);
  assert.equal(upstream.requests.length, 3);
});

test("a model that refuses one parameter after the other is called until it takes what is left", async (context) => {
  const { upstream, call } = await setUp(context, ({ body }) => {
    const param = SENT.find((name) => body[name] !== undefined);
    if (param === undefined) return null;
    return refusal({ message: `Unsupported parameter: '${param}'`, param, code: "unsupported_parameter" });
  });
  await call("strict", SAMPLING);
  assert.equal(upstream.requests.length, 6);
  await call("strict", SAMPLING);
  assert.equal(upstream.requests.length, 7);
});

test("a 400 whose words come from the prompt teaches nothing: the next call is sent every parameter", async (context) => {
  const echo = (prompt: string) =>
    refusal({ message: `Unsupported file: 'max_tokens temperature top_p' in ${prompt}`, code: "invalid_value" });
  const { upstream, lines, call } = await setUp(context, ({ lastUserText }) =>
    lastUserText === "bad" ? echo(lastUserText) : null,
  );
  const prompt = [{ role: "user" as const, content: [{ type: "text" as const, text: "bad" }] }];
  await assert.rejects(call("m", { ...SAMPLING, prompt }), { statusCode: 400 });
  const before = upstream.requests.length;
  const body = await call("m", SAMPLING);
  for (const name of SENT) assert.notEqual(body[name], undefined, name);
  assert.equal(upstream.requests.length, before + 1);
  assert.deepEqual(lines, []);
});

test("a limit of tokens that a model refuses is sent under its other name or not at all, and is never left out", async (context) => {
  const { upstream, call } = await setUp(context, ({ body, lastUserText }) => {
    const param = body.max_tokens === undefined ? "max_completion_tokens" : "max_tokens";
    const refuses = body[param] !== undefined && (param === "max_tokens" || lastUserText === "much");
    return refuses ? refusal({ message: `${param} of ${body[param]} is not supported`, param }) : null;
  });
  const prompt = [{ role: "user" as const, content: [{ type: "text" as const, text: "much" }] }];
  await assert.rejects(call("m", { ...SAMPLING, prompt }), { statusCode: 400 });
  assert.equal(upstream.requests.length, 2);
  assert.equal((await call("m", SAMPLING)).max_completion_tokens, 50);
});

const NOT_REPEATED: [string, object][] = [
  [
    "a value out of range",
    { message: "temperature must be between 0 and 2", param: "temperature", code: "invalid_value" },
  ],
  [
    "an effort that the model does not have",
    { message: "Unsupported value: 'minimal'", param: "reasoning_effort", code: "unsupported_value" },
  ],
  [
    "a parameter that was not sent",
    { message: "Unsupported parameter: 'logit_bias'", param: "logit_bias", code: "unsupported_parameter" },
  ],
  ["tools", { message: "tools are not supported by this model", param: "tools", code: "unsupported_parameter" }],
  [
    "a long prompt",
    { message: "This model's maximum context length is 8192 tokens.", code: "context_length_exceeded" },
  ],
];

for (const [title, error] of NOT_REPEATED) {
  test(`a 400 about ${title} is not repeated`, async (context) => {
    const { upstream, call } = await setUp(context, () => refusal(error));
    const providerOptions = { demo: { reasoningEffort: "minimal" } };
    await assert.rejects(call("m", { ...SAMPLING, providerOptions }), { statusCode: 400 });
    assert.equal(upstream.requests.length, 1);
  });
}

const SCHEMA = { type: "object" as const, properties: { a: { type: "number" as const } }, required: ["a"] };
const JSON_OUTPUT = { responseFormat: { type: "json" as const, schema: SCHEMA } };
const promptOf = (body: { messages: { content: string }[] }) => body.messages.map(({ content }) => content).join("\n");

const MODES = [
  ["json_schema", "json_schema", false],
  ["json_object", "json_object", true],
  ["prompt", undefined, true],
] as const;

for (const [mode, type, inPrompt] of MODES) {
  test(`structuredOutput: ${mode} sends ${type ?? "no response_format"}, and the schema ${inPrompt ? "stands" : "does not stand"} in the prompt`, async (context) => {
    const { call } = await setUp(context);
    const body = await call("m", JSON_OUTPUT, { structuredOutput: mode });
    assert.equal(body.response_format?.type, type);
    assert.equal(promptOf(body).includes(JSON.stringify(SCHEMA)), inPrompt);
  });
}

test("structuredOutput: auto steps down to json_object and to the prompt as the server refuses, remembers it and logs each once", async (context) => {
  const { upstream, lines, call } = await setUp(context, ({ body }) =>
    body.response_format === undefined
      ? null
      : refusal({ message: `This response_format type is unavailable now: ${body.response_format.type}` }),
  );
  const system = { prompt: [{ role: "system" as const, content: "Be brief." }, ...ask("hi").prompt] };
  const body = await call("m", { ...JSON_OUTPUT, ...system });
  assert.deepEqual(
    upstream.requests.map((request) => request.body.response_format?.type),
    ["json_schema", "json_object", undefined],
  );
  assert.deepEqual(
    body.messages.map(({ role }: { role: string }) => role),
    ["system", "user"],
  );
  assert.match(body.messages[0].content, /^Be brief\./);
  assert.ok(promptOf(body).includes(JSON.stringify(SCHEMA)));
  await call("m", JSON_OUTPUT);
  assert.equal(upstream.requests.length, 4);
  assert.equal(lines.length, 2);
});

test("a server that refuses this one schema gets the next ones as json_schema again", async (context) => {
  const { upstream, call } = await setUp(context, ({ body }) =>
    body.response_format?.json_schema?.schema.properties?.bad === undefined
      ? null
      : refusal({ message: "Invalid schema for response_format 'response': bad", param: "response_format" }),
  );
  const bad = { ...SCHEMA, properties: { ...SCHEMA.properties, bad: { type: "string" as const } } };
  assert.equal(
    (await call("m", { responseFormat: { type: "json", schema: bad } })).response_format.type,
    "json_object",
  );
  assert.equal((await call("m", JSON_OUTPUT)).response_format.type, "json_schema");
  assert.equal(upstream.requests.length, 3);
});

test("structuredOutputs: false sends no JSON Schema, but asks for JSON with the schema in the prompt", async (context) => {
  const { upstream, call } = await setUp(context, () => null, { structuredOutputs: false });
  for (let count = 0; count < 2; count++) {
    const body = await call("m", JSON_OUTPUT);
    assert.equal(body.response_format.type, "json_object");
    assert.ok(promptOf(body).includes(JSON.stringify(SCHEMA)));
  }
  assert.equal(upstream.requests.length, 2);
});

test("JSON without a schema is asked for in the prompt too, in one call, whatever structuredOutput says", async (context) => {
  for (const structuredOutput of ["auto", "json_schema", "json_object", "prompt"] as const) {
    const { upstream, call } = await setUp(context);
    const body = await call("m", { responseFormat: { type: "json" } }, { structuredOutput });
    assert.equal(body.response_format?.type, structuredOutput === "prompt" ? undefined : "json_object");
    assert.match(promptOf(body), /JSON object/);
    assert.equal(upstream.requests.length, 1);
  }
});

test("a structuredOutput that is set is not given up: the refusal is an error", async (context) => {
  const { upstream, call } = await setUp(context, () => refusal({ message: "response_format is not supported" }));
  await assert.rejects(call("m", JSON_OUTPUT, { structuredOutput: "json_schema" }), { statusCode: 400 });
  assert.equal(upstream.requests.length, 1);
});

test("a model that declines is an error with its own words", async (context) => {
  const event = { choices: [{ index: 0, delta: { refusal: "I cannot help." }, finish_reason: "stop" }] };
  const { call } = await setUp(context, () => ({
    steps: [{ raw: `data: ${JSON.stringify(event)}\n\n` }, { done: true }],
  }));
  await assert.rejects(
    call("m", {}),
    (thrown) => thrown instanceof ModelRefusal && thrown.refusal === "I cannot help.",
  );
});

test("a model that declines at great length is quoted with 4,000 characters", async (context) => {
  const event = { choices: [{ index: 0, delta: { refusal: "no ".repeat(100_000) }, finish_reason: "stop" }] };
  const { call } = await setUp(context, () => ({
    steps: [{ raw: `data: ${JSON.stringify(event)}\n\n` }, { done: true }],
  }));
  await assert.rejects(call("m", {}), (thrown) => thrown instanceof ModelRefusal && thrown.refusal.length === 4_000);
});
