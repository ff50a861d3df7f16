/** What a body with many faults costs: counted in items that are looked at and in errors that are kept. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createSchemaCompiler, describeProblems } from "../../../core/lib/json-schema.ts";
import { validators } from "../../../generated/validators.js";

interface Check {
  (value: unknown): boolean;
  errors?: readonly object[] | null;
}

/** An array that counts how often one of its items is read. */
function counted(items: unknown[]): { items: unknown[]; reads(): number } {
  let reads = 0;
  const get = (target: unknown[], key: string | symbol) => {
    if (typeof key === "string" && /^\d+$/.test(key)) reads++;
    return Reflect.get(target, key);
  };
  return { items: new Proxy(items, { get }), reads: () => reads };
}

const many = (count: number, item: unknown) => Array.from({ length: count }, () => item);
const peer = (parts: unknown) => ({ params: { message: { messageId: "m", role: "user", parts } } });

const LONG_LISTS: [name: string, check: Check, body: (items: unknown[]) => unknown][] = [
  ["SaveMessagesRequest", validators.SaveMessagesRequest, (messages) => ({ messages })],
  ["PeerOldMessageRequest", validators.PeerOldMessageRequest, peer],
  ["GenerateRequest", validators.GenerateRequest, (stopSequences) => ({ input: "x", options: { stopSequences } })],
];

for (const [name, check, body] of LONG_LISTS) {
  test(`the validator of ${name} looks at no item of a list that is too long`, () => {
    for (const item of [1, {}]) {
      const list = counted(many(5_000, item));
      assert.equal(check(body(list.items)), false);
      assert.equal(list.reads(), 0);
      assert.ok(check.errors!.length < 100, `${check.errors!.length} errors`);
    }
  });
}

test("the validator of SaveMessagesRequest stops at the twentieth error of a list whose length is allowed", () => {
  const list = counted(many(1_000, { role: "user", content: many(1_000, 1) }));
  assert.equal(validators.SaveMessagesRequest({ messages: list.items }), false);
  assert.ok(list.reads() <= 20, `${list.reads()} messages read`);
  assert.ok(validators.SaveMessagesRequest.errors!.length < 100);
});

test("a faulty message behind many good ones is found", () => {
  const good = many(999, { role: "user", content: [{ type: "text", text: "x" }] });
  assert.equal(validators.SaveMessagesRequest({ messages: [...good, { role: "user", content: 1 }] }), false);
  assert.match(describeProblems(validators.SaveMessagesRequest.errors as never), /messages\[999\]\.content must be/);
  assert.equal(validators.SaveMessagesRequest({ messages: [...good, good[0]] }), true);
});

test("the schema of a tool stops at the twentieth error of lists, maps and names", () => {
  const $defs = { item: { type: "object", properties: { next: { $ref: "#/$defs/item" } } } };
  const refused = many(20_000, 1);
  const map = Object.fromEntries(refused.map((value, index) => [`key${index}`, value]));
  const rows: [schema: object, value: unknown][] = [
    [{ items: { $ref: "#/$defs/item" } }, refused],
    [{ additionalProperties: { $ref: "#/$defs/item" } }, map],
    [{ patternProperties: { "^k": { $ref: "#/$defs/item" } } }, map],
    [{ additionalProperties: false }, map],
    [{ propertyNames: { maxLength: 3 } }, map],
    [{ contains: { $ref: "#/$defs/item" } }, refused],
    [{ unevaluatedProperties: false }, map],
    [{ unevaluatedItems: false }, refused],
    [{ prefixItems: [true], items: { $ref: "#/$defs/item" } }, refused],
  ];
  for (const [schema, value] of rows) {
    const check = createSchemaCompiler().compile({ $defs, ...schema });
    assert.equal(check(value), false, JSON.stringify(schema));
    assert.ok(check.errors!.length <= 60, `${JSON.stringify(schema)}: ${check.errors!.length} errors`);
  }
});

test("the schema of a tool decides the same however many faults an alternative has had before", () => {
  const compile = (schema: object) => createSchemaCompiler().compile(schema);
  const texts = { type: "array", items: { type: "string" } };
  const numbers = { type: "array", items: { type: "number" } };
  const both = compile({ anyOf: [texts, numbers] });
  assert.equal(both(many(500, 1)), true);
  assert.equal(both([...many(500, 1), true]), false);
  const last = compile({ contains: { type: "string" } });
  assert.equal(last([...many(500, 1), "x"]), true);
  const three = compile({ contains: { type: "string" }, minContains: 3 });
  assert.equal(three([...many(500, 1), "x", "y", "z"]), true);
  assert.equal(three([...many(500, 1), "x", "y"]), false);
  const not = compile({ not: { items: { type: "string" } } });
  assert.equal(not(many(500, 1)), true);
  assert.equal(not(many(500, "x")), false);
});

test("uniqueItems of a tool's schema compares by value, in one pass", () => {
  const check = createSchemaCompiler().compile({ type: "array", uniqueItems: true });
  const list = counted(Array.from({ length: 3_000 }, (_, index) => ({ a: index, b: [index] })));
  assert.equal(check(list.items), true);
  assert.ok(list.reads() <= 6_000, `${list.reads()} items read`);
  assert.equal(check([{ a: 1, b: [2] }, 3, { b: [2], a: 1 }]), false);
  assert.equal(describeProblems(check.errors), "body must NOT have duplicate items (items ## 0 and 2 are identical)");
  for (const different of [
    [1, "1"],
    [null, "null"],
    [[], {}],
    [0, false],
    [
      [1, 2],
      [2, 1],
    ],
  ])
    assert.equal(check(different), true, JSON.stringify(different));
});

test("what is said of a faulty value is short, however long its names are", () => {
  const long = "n".repeat(100_000);
  const compile = (schema: object) => createSchemaCompiler().compile(schema);
  const rows: [object, unknown][] = [
    [{ additionalProperties: { type: "number" } }, { [long]: "x" }],
    [{ additionalProperties: false }, { [long]: 1 }],
    [{ additionalProperties: { additionalProperties: { type: "number" } } }, { [long]: { [`${long}/~`]: "x" } }],
    [{ const: long }, 1],
    [{ enum: [long, long] }, 1],
    [{ propertyNames: { maxLength: 1 } }, Object.fromEntries(many(30, 1).map((_, index) => [long + index, 1]))],
  ];
  for (const [schema, value] of rows) {
    const check = compile(schema);
    assert.equal(check(value), false);
    const text = describeProblems(check.errors, "input");
    assert.ok(text.length > 0 && text.length <= 21_000, `${text.length} characters`);
    assert.ok(text.startsWith("input"), text.slice(0, 80));
  }
});
