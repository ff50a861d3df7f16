/** Contract, "Query parameters of GET /workflows/executions": what a request asks for. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { parseQuery, requireValid } from "../../../core/http/decode.ts";
import { executionQuery } from "../../../core/workflows/begin.ts";
import { validators } from "../../../generated/all-validators.js";
import type { ExecutionsQuery } from "../../../generated/types.ts";

/** As the pipeline does it: parse, validate, hand over. */
function read(text: string) {
  const query = parseQuery(text);
  requireValid(validators.ExecutionsQuery, query);
  return executionQuery(query as ExecutionsQuery);
}

const encode = (value: unknown) => encodeURIComponent(JSON.stringify(value));
const metadata = (text: string) => Object.fromEntries(read(text).metadata ?? []);

describe("executionQuery", () => {
  test("executionQuery gives 50 from the first on when it says nothing, and unknown parameters are ignored", () => {
    assert.deepEqual(read(""), { limit: 50, offset: 0 });
    assert.deepEqual(read("page=2&metadatum=x"), { limit: 50, offset: 0 });
  });

  test("executionQuery takes every filter", () => {
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
    test(`executionQuery: status=${word} means ${status}`, () => assert.equal(read(`status=${word}`).status, status));
  }

  test("metadata as a JSON object: every key must have the value", () => {
    assert.deepEqual(metadata(`metadata=${encode({ team: "sales", n: 7, deep: { a: [1] } })}`), {
      team: ["sales"],
      n: [7],
      deep: [{ a: [1] }],
    });
    assert.equal(read("metadata=%7B%7D").metadata, undefined);
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

  test("executionQuery: names of Object.prototype are keys of metadata like any other", () => {
    const { metadata } = read(`metadata=${encodeURIComponent('{"__proto__":1,"constructor":2}')}&metadata.toString=3`);
    assert.deepEqual([...metadata!.keys()], ["__proto__", "constructor", "toString"]);
  });

  test("a value of metadata.KEY with too many brackets is a text", () => {
    const text = "[".repeat(300) + "]".repeat(300);
    assert.deepEqual(metadata(`metadata.a=${text}`), { a: [text] });
  });
});
