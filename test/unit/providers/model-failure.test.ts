/** How failures of providers are sorted: what clients are told, and whether another try makes sense. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { APICallError, UnsupportedFunctionalityError } from "@ai-sdk/provider";
import { AnswerNotRecorded } from "../../../core/models/cassettes/cassette.ts";
import { classifyFailure, isContextLengthError, providerFailed } from "../../../core/models/failure.ts";
import { ModelRefusal, ProviderQueueFull } from "../../../core/plugin/plugin.ts";

const status = (statusCode: number, responseHeaders?: Record<string, string>) =>
  new APICallError({ message: "no", url: "http://x", requestBodyValues: {}, statusCode, responseHeaders });

const wrapped = (cause: unknown) =>
  new APICallError({ message: "Cannot connect to API", url: "http://x", requestBodyValues: {}, cause });

const coded = (code: string) => Object.assign(new Error(code), { code });

const CASES: [string, unknown, string, boolean][] = [
  ["429", status(429), "rate limited", true],
  ["408", status(408), "timed out", true],
  ["504", status(504), "timed out", true],
  ["500", status(500), "unavailable", true],
  ["503", status(503), "overloaded", true],
  ["529", status(529), "overloaded", true],
  ["400", status(400), "refused the request", false],
  ["401", status(401), "refused the request", false],
  [
    "a connect time-out below two wrappers",
    new TypeError("fetch failed", { cause: wrapped(coded("UND_ERR_CONNECT_TIMEOUT")) }),
    "timed out",
    true,
  ],
  ["a TimeoutError", new DOMException("late", "TimeoutError"), "timed out", true],
  ["a refused connection", wrapped(coded("ECONNREFUSED")), "unavailable", true],
  [
    "a closed socket behind a status of 200",
    new APICallError({ message: "x", url: "", requestBodyValues: {}, statusCode: 200, cause: coded("UND_ERR_SOCKET") }),
    "unavailable",
    true,
  ],
  [
    "an unsupported feature",
    new UnsupportedFunctionalityError({ functionality: "audio" }),
    "refused the request",
    false,
  ],
  [
    "an event with a rate limit",
    { message: "slow down", type: "tokens", code: "rate_limit_exceeded" },
    "rate limited",
    true,
  ],
  ["an event with a status as code", { message: "x", code: 429 }, "rate limited", true],
  ["an event that blames the request", { message: "x", type: "invalid_request_error" }, "refused the request", false],
  ["an event about the server", { message: "x", type: "server_error" }, "unavailable", true],
  ["a refusal of the model", new ModelRefusal("I cannot help with that."), "refused to answer", false],
  ["a request without a recorded answer", new AnswerNotRecorded("x"), "not recorded", false],
  ["a string", "boom", "unavailable", true],
  ["nothing", undefined, "unavailable", true],
];

for (const [title, thrown, reason, retry] of CASES) {
  test(`${title} is "${reason}", ${retry ? "worth" : "not worth"} another try`, () => {
    const failure = classifyFailure(thrown);
    assert.equal(failure.reason, reason);
    assert.equal(failure.retry, retry);
    assert.equal(failure.retryAfter, null);
  });
}

test("a cause that refers to itself ends", () => {
  const error = new Error("round");
  error.cause = error;
  assert.equal(classifyFailure(error).reason, "unavailable");
});

const NOW = Date.parse("2030-01-01T00:00:00Z");
for (const [headers, expected] of [
  [{ "retry-after": "3" }, 3000],
  [{ "retry-after": "0" }, 0],
  [{ "retry-after": "1.5" }, 1500],
  [{ "retry-after": "Tue, 01 Jan 2030 00:00:10 GMT" }, 10_000],
  [{ "retry-after": "Tue, 01 Jan 2019 00:00:10 GMT" }, 0],
  [{ "retry-after-ms": "250", "retry-after": "1" }, 250],
  [{ "retry-after": "soon" }, null],
  [{ "retry-after": "-5" }, null],
  [{ "retry-after": "" }, null],
  [{ "retry-after": "1000000000" }, 86_400_000],
  [{ "retry-after-ms": "1e400" }, 86_400_000],
] as [Record<string, string>, number | null][]) {
  test(`${JSON.stringify(headers)} asks to wait ${expected} ms`, () => {
    assert.equal(classifyFailure(status(429, headers), NOW).retryAfter, expected);
  });
}

const said = (statusCode: number, message: string, code?: string) =>
  new APICallError({
    message,
    url: "http://x",
    requestBodyValues: {},
    statusCode,
    responseBody: JSON.stringify({ error: { message, code } }),
  });

const TOO_LONG: [string, unknown][] = [
  [
    "OpenAI",
    said(
      400,
      "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
    ),
  ],
  [
    "OpenAI's Responses API",
    said(400, "Your input exceeds the context window of this model.", "context_length_exceeded"),
  ],
  ["a code alone", said(400, "no", "context_length_exceeded")],
  ["Anthropic", said(400, "prompt is too long: 210000 tokens > 200000 maximum")],
  [
    "Anthropic with max_tokens",
    said(400, "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"),
  ],
  ["Gemini", said(400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).")],
  ["vLLM", said(400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096.")],
  ["llama.cpp", said(500, "the request exceeds the available context size, try increasing it")],
  ["Mistral", said(400, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length")],
  ["Cohere", said(400, "too many tokens: total number of tokens in the prompt cannot exceed 4081")],
  ["xAI", said(400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens.")],
  ["Bedrock", said(400, "Input is too long for requested model.")],
  ["GitHub Models", said(413, "Request body too large for gpt-4o model.", "tokens_limit_reached")],
  ["an event within a stream", { message: "no", type: "invalid_request_error", code: "context_length_exceeded" }],
  ["an event that is a text", "This model's maximum context length is 8192 tokens."],
];
for (const [title, thrown] of TOO_LONG) {
  test(`a prompt that is too long is recognised as ${title} says it`, () => {
    assert.equal(isContextLengthError(thrown), true);
    const error = providerFailed(classifyFailure(thrown), thrown);
    assert.equal(isContextLengthError(error), true, "and so is the error that clients get");
    assert.match(error.message, /context_length/);
    assert.equal(classifyFailure(thrown).retry, false);
  });
}

for (const [title, thrown] of [
  [
    "a rate limit of tokens",
    said(429, "Request too large for gpt-4o on tokens per min (TPM). The maximum context length"),
  ],
  ["too many output tokens", said(400, "max_tokens is too large: 200000. This model supports at most 16384 tokens")],
  ["a text that is too long", said(400, "Invalid 'messages[0].content': string too long.", "string_above_max_length")],
  ["a body that is too large", said(413, "Request exceeds the maximum size", "request_too_large")],
] as [string, unknown][]) {
  test(`${title} is not taken for a prompt that is too long`, () => assert.equal(isContextLengthError(thrown), false));
}

test("the text of a refusal is in the error that clients see", () => {
  const refusal = new ModelRefusal("I cannot help with that.");
  const error = providerFailed(classifyFailure(refusal), refusal);
  assert.equal(error.message, "model provider failed: refused to answer: I cannot help with that.");
});

test("a full queue of the service's own is a 429 of the service: the model is not called again, another one may be", () => {
  const full = new ProviderQueueFull(4, 1000);
  const failure = classifyFailure(full);
  assert.deepEqual([failure.reason, failure.retry, failure.fallback], ["queue full", false, true]);
  const { kind, source, facts } = providerFailed(failure, full);
  assert.deepEqual([kind, source, facts], ["rate_limited", "service", { retryAfter: 1 }]);
});
