/** How failures of providers are sorted: what clients are told, and whether another try makes sense. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { APICallError, UnsupportedFunctionalityError } from "@ai-sdk/provider";
import { classifyFailure } from "../../../core/models/failure.ts";

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
  ["529", status(529), "unavailable", true],
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
] as [Record<string, string>, number | null][]) {
  test(`${JSON.stringify(headers)} asks to wait ${expected} ms`, () => {
    assert.equal(classifyFailure(status(429, headers), NOW).retryAfter, expected);
  });
}
