/** Contract, "Query parameters of GET /workflows/executions": what a request asks for. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { parseQuery, requireValid } from "../../../core/http/decode.ts";
import { ServiceError } from "../../../core/lib/errors.ts";
import { executionIdParam, executionQuery, parseEventCursor } from "../../../core/workflows/begin.ts";
import { validators } from "../../../generated/all-validators.js";
import type { AttachQuery, ExecutionsQuery } from "../../../generated/types.ts";

/** As the pipeline does it: parse, validate, hand over. */
function read(text: string) {
  const query = parseQuery(text);
  requireValid(validators.ExecutionsQuery, query);
  return executionQuery(query as ExecutionsQuery);
}

const encode = (value: unknown) => encodeURIComponent(JSON.stringify(value));
const metadata = (text: string) => Object.fromEntries(read(text).metadata ?? []);

describe("GET /workflows/executions: the query", () => {
  test("GET /workflows/executions gives 50 from the first on when it says nothing, and unknown parameters are ignored", () => {
    assert.deepEqual(read(""), { limit: 50, offset: 0 });
    assert.deepEqual(read("page=2&metadatum=x"), { limit: 50, offset: 0 });
  });

  test("GET /workflows/executions takes every filter", () => {
    assert.deepEqual(
      read(
        "workflowId=expense&status=error&userId=ada&limit=500&offset=10&from=2026-11-20&to=2026-11-20T10:30:00%2B01:00",
      ),
      {
        workflowId: "expense",
        status: "error",
        userId: "ada",
        limit: 500,
        offset: 10,
        from: Date.parse("2026-11-20T00:00:00Z"),
        to: Date.parse("2026-11-20T09:30:00Z"),
      },
    );
  });

  for (const [word, status] of [
    ["success", "completed"],
    ["pending", "running"],
    ["running", "running"],
    ["suspended", "suspended"],
    ["completed", "completed"],
    ["cancelled", "cancelled"],
    ["error", "error"],
  ]) {
    test(`GET /workflows/executions?status=${word} means ${status}`, () =>
      assert.equal(read(`status=${word}`).status, status));
  }

  test("metadata as a JSON object: every key must have the value", () => {
    assert.deepEqual(metadata(`metadata=${encode({ team: "sales", n: 7, deep: { a: [1] } })}`), {
      team: ["sales"],
      n: [7],
      deep: [{ a: [1] }],
    });
    assert.equal(read("metadata=%7B%7D").metadata, undefined);
  });

  test("GET /workflows/executions?metadata.KEY: the text or the JSON value", () => {
    assert.deepEqual(metadata("metadata.team=sales&metadata.n=7&metadata.a.b=true&metadata.q=%22x%22"), {
      team: ["sales"],
      n: ["7", 7],
      "a.b": ["true", true],
      q: ['"x"', "x"],
    });
    assert.deepEqual(metadata("metadata.team="), { team: [""] });
  });

  test("both forms of one key combine with and: what only one of them allows matches nothing", () => {
    assert.deepEqual(
      metadata(`metadata=${encode({ n: 7, o: { a: 1 } })}&metadata.n=7&metadata.o=${encode({ a: 1 })}`),
      {
        n: [7],
        o: [{ a: 1 }],
      },
    );
    assert.deepEqual(metadata(`metadata=${encode({ n: 7 })}&metadata.n=8`), { n: [] });
  });

  test("GET /workflows/executions: names of Object.prototype are keys of metadata like any other", () => {
    const { metadata } = read(`metadata=${encodeURIComponent('{"__proto__":1,"constructor":2}')}&metadata.toString=3`);
    assert.deepEqual([...metadata!.keys()], ["__proto__", "constructor", "toString"]);
  });

  for (const [query, message] of [
    ["limit=abc", /^limit must be integer$/],
    ["limit=0", /^limit must be >= 1$/],
    ["limit=501", /^limit must be <= 500$/],
    ["limit=", /^limit must be integer$/],
    ["limit=1.5", /^limit must be integer$/],
    ["offset=-1", /^offset must be >= 0$/],
    ["status=foo", /^status must be one of "running", "suspended"/],
    ["status=", /^status must be one of/],
    ["from=yesterday", /^from must be an ISO 8601 timestamp/],
    ["to=2026-02-30", /^to must be an ISO 8601 timestamp/],
    ["from=", /^from must be an ISO 8601 timestamp/],
    ["workflowId=", /^workflowId must NOT have fewer than 1 characters$/],
    ["metadata=", /^metadata must be a JSON object such as/],
    ["metadata={team", /^metadata must be a JSON object such as/],
    ["metadata=[1]", /^metadata must be a JSON object such as/],
    ["metadata=null", /^metadata must be a JSON object such as/],
    ["metadata=%227%22", /^metadata must be a JSON object such as/],
    ["metadata.=x", /^metadata\. needs the name of a key/],
    [`metadata.a=${"x".repeat(5000)}`, /^metadata\.a must not be longer than 4096 characters$/],
    [`metadata={"a":${"[".repeat(300)}${"]".repeat(300)}}`, /^metadata is nested too deeply$/],
    [Array.from({ length: 65 }, (_, n) => `metadata.k${n}=1`).join("&"), /^metadata must not name more than 64 keys$/],
  ] as const) {
    test(`GET /workflows/executions?${query.slice(0, 40)} is refused`, () => {
      assert.throws(
        () => read(query),
        (error) => error instanceof ServiceError && error.kind === "invalid_input" && message.test(error.message),
      );
    });
  }

  test("a value of metadata.KEY with too many brackets is a text", () => {
    const text = "[".repeat(300) + "]".repeat(300);
    assert.deepEqual(metadata(`metadata.a=${text}`), { a: [text] });
  });
});

describe("GET /workflows/:id/executions/:executionId/stream: where to go on", () => {
  const cursor = (text: string, headers: Record<string, string> = {}) => {
    const query = parseQuery(text);
    requireValid(validators.AttachQuery, query);
    return parseEventCursor(query as AttachQuery, headers);
  };

  test("GET .../executions/:executionId/stream begins with the first event, after fromSequence, after Last-Event-ID; the header goes first", () => {
    assert.equal(cursor(""), 0);
    assert.equal(cursor("fromSequence=5"), 5);
    assert.equal(cursor("", { "last-event-id": "7" }), 7);
    assert.equal(cursor("fromSequence=5", { "last-event-id": "7" }), 7);
    assert.equal(cursor("fromSequence=5", { "last-event-id": "" }), 5);
  });

  for (const [query, header, message] of [
    ["fromSequence=abc", "", /^fromSequence must be integer$/],
    ["fromSequence=-1", "", /^fromSequence must be >= 0$/],
    ["fromSequence=", "", /^fromSequence must be integer$/],
    ["", "abc", /^Last-Event-ID must be the number of an event$/],
    ["fromSequence=5", "-1", /^Last-Event-ID must be the number of an event$/],
    ["", "1e3", /^Last-Event-ID must be the number of an event$/],
    ["", "9".repeat(30), /^Last-Event-ID must be the number of an event$/],
  ] as const) {
    test(`GET .../stream with query "${query}" and Last-Event-ID "${header}" is refused`, () => {
      assert.throws(() => cursor(query, { "last-event-id": header }), { kind: "invalid_input", message });
    });
  }
});

test("an execution id that is longer than any can be is not found", () => {
  assert.equal(executionIdParam({ executionId: "e" }), "e");
  assert.throws(() => executionIdParam({ executionId: "x".repeat(129) }), { kind: "not_found" });
});
