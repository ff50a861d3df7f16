/** Contract, "options of the generation endpoints" and "Limits": ranges and forms that the request schemas enforce. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { AgentPart } from "../../core/agents/run/parts.ts";
import { describeProblems } from "../../core/lib/json-schema.ts";
import { validators } from "../../generated/all-validators.js";
import type { Schemas } from "../../generated/types.ts";
import { clientChecks } from "../support/chunk-validators.ts";
import { schemas } from "../support/schemas.ts";

/** What a client is told about a value; null when it is accepted. */
function problemOf(id: keyof Schemas, value: unknown): string | null {
  const validate = validators[id];
  return validate(value) ? null : describeProblems(validate.errors as never);
}

const withOption = (path: string, value: unknown) => {
  const options: Record<string, unknown> = {};
  const keys = path.split(".");
  let at = options;
  for (const key of keys.slice(0, -1)) at = at[key] = {} as Record<string, never>;
  at[keys.at(-1)!] = value;
  return { input: "Hello", options };
};

const MEMORY = "memory.options.";

/** Path, values that are accepted, values that are refused and what is said of each. */
const ROWS: [path: string, accepted: unknown[], refused: [unknown, string][]][] = [
  [
    "temperature",
    [0, 0.7, 1, null],
    [
      [1.01, "must be <= 1"],
      [-0.1, "must be >= 0"],
      ["0.7", "must be number or null"],
    ],
  ],
  [
    "topP",
    [0, 1],
    [
      [1.5, "must be <= 1"],
      [-1, "must be >= 0"],
    ],
  ],
  [
    "frequencyPenalty",
    [0, 2],
    [
      [2.1, "must be <= 2"],
      [-0.1, "must be >= 0"],
    ],
  ],
  [
    "presencePenalty",
    [0, 2],
    [
      [2.1, "must be <= 2"],
      [-0.1, "must be >= 0"],
    ],
  ],
  [
    "maxSteps",
    [1, 100],
    [
      [0, "must be >= 1"],
      [101, "must be <= 100"],
      [1.5, "must be integer"],
      [null, "must be integer"],
    ],
  ],
  [
    "maxOutputTokens",
    [1, 4000, null],
    [
      [0, "must be >= 1"],
      [1.5, "must be integer or null"],
      ["4000", "must be integer or null"],
    ],
  ],
  [
    "seed",
    [0, -7, 42, null],
    [
      [1.5, "must be integer or null"],
      ["7", "must be integer or null"],
    ],
  ],
  ["stopSequences", [[], ["END"], null], [["END", "must be array or null"]]],
  ["providerOptions", [{}, { openai: { user: "ada" } }], [[[], "must be object"]]],
  ["context", [{}, { language: "French", nested: { a: [1] } }], [["French", "must be object"]]],
  [
    "runId",
    ["r1", "a:b_c.d-e"],
    [
      [
        "..",
        'must be 1 to 128 letters, digits, "_", ".", ":" or "-", and not "." or "..", which cannot stand in a path',
      ],
      [7, "must be string"],
    ],
  ],
  ["background", [true, false], [["true", "must be boolean"]]],
  ["resumableStream", [true, false], [["true", "must be boolean"]]],
  ["textInDeltas", [true, false], [["true", "must be boolean"]]],
  [`${MEMORY}messageMetadataPersistence`, [true, false, {}, { usage: true, finishReason: false }], []],
  [
    "output",
    [{ type: "text" }, { type: "object", schema: { type: "object" } }],
    [
      ["object", "must be object"],
      [[], "must be object"],
    ],
  ],
  ["output.type", ["text", "object"], [["json", 'must be one of "text", "object"']]],
  ["memory", [{}, { userId: "u", conversationId: "c" }], [["u", "must be object"]]],
  [
    "memory.userId",
    ["ada@example.com"],
    [
      [7, "must be string"],
      ["x".repeat(257), "must NOT have more than 256 characters"],
    ],
  ],
  [
    "memory.conversationId",
    ["order-1042"],
    [
      [7, "must be string"],
      ["", "must NOT have fewer than 1 characters"],
    ],
  ],
  [`${MEMORY}readOnly`, [true], [[1, "must be boolean"]]],
  ...["", MEMORY].flatMap((prefix): typeof ROWS => [
    [
      `${prefix}contextLimit`,
      [0, 10],
      [
        [-1, "must be >= 0"],
        [1.5, "must be integer"],
      ],
    ],
    [`${prefix}semanticMemory.enabled`, [true, false], [["yes", "must be boolean"]]],
    [
      `${prefix}semanticMemory.semanticLimit`,
      [5],
      [
        [-1, "must be >= 0"],
        [101, "must be <= 100"],
      ],
    ],
    [
      `${prefix}semanticMemory.semanticThreshold`,
      [0, 0.7, 1],
      [
        [1.1, "must be <= 1"],
        [-0.1, "must be >= 0"],
      ],
    ],
    [
      `${prefix}semanticMemory.mergeStrategy`,
      ["prepend", "append", "interleave"],
      [["replace", 'must be one of "prepend", "append", "interleave"']],
    ],
    [`${prefix}conversationPersistence.mode`, ["step", "finish"], [["never", 'must be one of "step", "finish"']]],
    [
      `${prefix}conversationPersistence.debounceMs`,
      [0, 200],
      [
        [-1, "must be >= 0"],
        ["200", "must be integer"],
      ],
    ],
    [`${prefix}conversationPersistence.flushOnToolResult`, [true, false], [[1, "must be boolean"]]],
  ]),
  ["userId", ["ada"], [[7, "must be string"]]],
  ["conversationId", ["c1"], [[7, "must be string"]]],
];

for (const [path, accepted, refused] of ROWS) {
  test(`POST /agents/:id/text: options.${path} is checked, and the message names it`, () => {
    for (const value of accepted)
      assert.equal(problemOf("GenerateRequest", withOption(path, value)), null, JSON.stringify(value));
    for (const [value, message] of refused)
      assert.equal(problemOf("GenerateRequest", withOption(path, value)), `options.${path} ${message}`);
  });
}

test("POST /agents/:id/text: every documented option has a row here", () => {
  const documented = Object.keys(schemas.GenerateOptions!.properties as object);
  const tested = new Set(ROWS.map(([path]) => path.split(".")[0]!));
  assert.deepEqual(
    documented.filter((name) => !tested.has(name)),
    [],
  );
});

test("POST /agents/:id/text: all problems are named at once", () => {
  const problem = problemOf("GenerateRequest", { options: { temperature: 2, stopSequences: [1] } });
  assert.deepEqual(problem?.split("; ").sort(), [
    "input is required",
    "options.stopSequences[0] must be string",
    "options.temperature must be <= 1",
  ]);
});

test("POST /agents/:id/text: unknown keys are accepted, and the body is not touched: no defaults, no coercion", () => {
  const body = { input: "Hello", unknown: 1, options: { other: true, memory: { options: { x: 1 } } } };
  const before = JSON.stringify(body);
  assert.equal(problemOf("GenerateRequest", body), null);
  assert.equal(JSON.stringify(body), before);
});

test("POST /agents/:id/object: schema is required and an object", () => {
  assert.equal(problemOf("ObjectRequest", { input: "x", schema: { type: "object" } }), null);
  assert.equal(problemOf("ObjectRequest", { input: "x" }), "schema is required");
  assert.equal(problemOf("ObjectRequest", { input: "x", schema: "string" }), "schema must be object");
});

test("POST /agents/:id/chat: our body and the body of a chat hook both fit", () => {
  const messages = [{ id: "m1", role: "user", parts: [{ type: "text", text: "Hi" }] }];
  assert.equal(problemOf("ChatRequest", { input: messages, options: { temperature: 0 } }), null);
  assert.equal(problemOf("ChatRequest", { input: "Hi" }), null);
  assert.equal(problemOf("ChatRequest", { id: "c1", messages, trigger: "submit-message" }), null);
  assert.equal(problemOf("ChatRequest", { id: "c1", messages, trigger: "regenerate-message", messageId: "m1" }), null);
  assert.equal(problemOf("ChatRequest", { id: 7, messages }), "id must be string");
});

test("POST /tools/:name/execute: input is an object, context an optional one", () => {
  assert.equal(problemOf("ExecuteToolRequest", { input: {} }), null);
  assert.equal(problemOf("ExecuteToolRequest", { input: { a: 1 }, context: { b: 2 } }), null);
  assert.equal(problemOf("ExecuteToolRequest", {}), "input is required");
  assert.equal(problemOf("ExecuteToolRequest", { input: [1] }), "input must be object");
  assert.equal(problemOf("ExecuteToolRequest", { input: {}, context: "x" }), "context must be object");
});

test("GET /agents/:id/history: page and limit are read from text, within their bounds", () => {
  const query: Record<string, unknown> = { page: "2", limit: "100", other: "x" };
  assert.equal(problemOf("HistoryQuery", query), null);
  assert.deepEqual(query, { page: 2, limit: 100, other: "x" });
  assert.equal(problemOf("HistoryQuery", {}), null);
  for (const [given, message] of [
    [{ limit: "101" }, "limit must be <= 100"],
    [{ limit: "0" }, "limit must be >= 1"],
    [{ limit: "abc" }, "limit must be integer"],
    [{ limit: "" }, "limit must be integer"],
    [{ limit: "1.5" }, "limit must be integer"],
    [{ page: "-1" }, "page must be >= 0"],
  ] as const)
    assert.equal(problemOf("HistoryQuery", { ...given }), message);
});

/** Does not compile when the parts that agents make and the events that `/doc` promises differ. */
const documented = (part: AgentPart): Schemas["RawStreamPart"] => part;

test("POST /agents/:id/stream: a part of a sub-agent fits the event schema", () => {
  const part = documented({ type: "text-delta", id: "0", delta: "x", subAgentId: "writer", subAgentName: "Writer" });
  assert.equal(validators.RawStreamPart(part), true);
  assert.equal(validators.RawStreamPart({ type: "text-delta", id: "0" }), false);
});

/** What stands under keys that take neither a text nor a finish reason. */
const CHUNK_VALUES: Record<string, unknown> = {
  providerMetadata: { openai: { itemId: "x" } },
  data: { toolCallId: "x", toolName: "x", progress: 1, total: 2, message: "x" },
};

for (const [version, accepts] of await clientChecks()) {
  test(`POST /agents/:id/chat: the client ${version} accepts every chunk that the schema allows, with all of its keys`, async () => {
    const branches = schemas.UIMessageChunk!.oneOf as {
      properties: Record<string, { const?: string; $ref?: string }>;
    }[];
    assert.ok(branches.length > 15);
    for (const { properties } of branches) {
      const chunk = Object.fromEntries(
        Object.entries(properties).map(([key, schema]) => [
          key,
          CHUNK_VALUES[key] ?? schema.const ?? (schema.$ref === undefined ? "x" : "stop"),
        ]),
      );
      assert.equal(validators.UIMessageChunk(chunk), true, JSON.stringify(chunk));
      // Version 5 of the client is older than approvals: an agent whose tools ask for them needs a newer one.
      const isKnown =
        version !== "ai-5" || !["tool-approval-request", "tool-output-denied"].includes(String(chunk.type));
      assert.equal(await accepts(chunk), isKnown, `${version}: ${JSON.stringify(chunk)}`);
    }
    assert.equal(await accepts({ type: "text-delta", id: 1 }), false, "the client's own check is awake");
  });
}
