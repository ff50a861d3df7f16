import assert from "node:assert/strict";
import { test } from "node:test";
import { createClientSchemas } from "../../../core/client-schema/schemas.ts";
import { ServiceError } from "../../../core/lib/errors.ts";

const compile = createClientSchemas();
const refuses = (work: () => unknown, message: RegExp) =>
  assert.throws(work, (error: unknown) => {
    assert.ok(error instanceof ServiceError, String(error));
    assert.equal(error.kind, "invalid_input");
    assert.match(error.message, message);
    return true;
  });

const person = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "number" } },
  required: ["name"],
};

test("schema of a request: a value that fits has no problems, one that does not has all of them", () => {
  const { problems } = compile(person, "schema");
  assert.equal(problems({ name: "Ada", age: 36 }), null);
  assert.equal(problems({ age: "old" }), "result.name is required; result.age must be number");
  assert.equal(problems(5), "result must be object");
});

test("schema of a request: the same schema is compiled once", () => {
  assert.equal(compile({ ...person }, "schema"), compile({ ...person }, "schema"));
});

test("schema of a request: older drafts, $id and local references work", () => {
  const { problems } = compile(
    {
      $schema: "http://json-schema.org/draft-07/schema#",
      $id: "https://example.com/person.json",
      type: "object",
      properties: { pair: { type: "array", items: [{ type: "string" }, { $ref: "#/definitions/count" }] } },
      definitions: { count: { type: "integer" } },
    },
    "schema",
  );
  assert.equal(problems({ pair: ["a", 1] }), null);
  assert.equal(problems({ pair: ["a", "b"] }), "result.pair[1] must be integer");
});

test("schema of a request without a type, or of none that exists, is refused", () => {
  refuses(() => compile({ properties: {} }, "schema"), /^schema must be a JSON Schema with a type$/);
  refuses(() => compile([] as object, "schema"), /with a type/);
  refuses(() => compile({ type: "objekt" }, "schema"), /^schema does not compile/);
  refuses(
    () => compile({ type: "object", properties: { a: { type: "string", pattern: "(" } } }, "schema"),
    /does not compile/,
  );
});

test("schema of a request may have hundreds of fields", () => {
  const names = Array.from({ length: 800 }, (_, index) => `field${index}`);
  const properties = Object.fromEntries(names.map((name) => [name, { type: "string", minLength: 1 }]));
  const { problems } = compile({ type: "object", properties, required: names }, "schema");
  assert.equal(problems(Object.fromEntries(names.map((name) => [name, "x"]))), null);
});

test("schema of a request that is too deep or too large is refused", () => {
  let deep: object = { type: "string" };
  for (let level = 0; level < 20; level++) deep = { type: "object", properties: { a: deep } };
  refuses(() => compile(deep, "schema"), /at most 32 levels deep/);
  refuses(() => compile({ type: "object", description: "é".repeat(33 * 1024) }, "schema"), /at most 64 KiB/);
});

test("schema of a request with a remote reference is refused, wherever it stands", () => {
  for (const reference of ["https://example.com/x.json", "other.json#/a", "file:///etc/passwd"]) {
    refuses(
      () => compile({ type: "object", properties: { a: { $ref: reference } } }, "schema"),
      /must not refer to another/,
    );
  }
  refuses(() => compile({ type: "object", $ref: "#/$defs/none" }, "schema"), /does not compile/);
});

test("schema of a request whose pattern would backtrack for ever is matched in a time that grows with the text", () => {
  const { problems } = compile({ type: "object", properties: { a: { type: "string", pattern: "^(a+)+$" } } }, "schema");
  assert.equal(problems({ a: "aaa" }), null);
  assert.equal(problems({ a: `${"a".repeat(10_000)}!` }), 'result.a must match pattern "^(a+)+$"');
});

test("schema of a request whose references fan out without end is given up on", () => {
  const $defs: Record<string, object> = { d60: { type: "string" } };
  for (let index = 0; index < 60; index++) {
    const next = { $ref: `#/$defs/d${index + 1}` };
    $defs[`d${index}`] = { allOf: [next, next] };
  }
  refuses(
    () => compile({ type: "object", properties: { a: { $ref: "#/$defs/d0" } }, $defs }, "schema").problems({ a: "x" }),
    /cannot be checked: it takes more than \d+ steps/,
  );
});

test("schema of a request: one that refers to itself works, by # and by its own $id", () => {
  for (const [$id, $ref] of [
    [undefined, "#"],
    ["https://example.com/tree.json", "#"],
  ]) {
    const children = { type: "array", items: { $ref } };
    const tree = { ...($id && { $id }), type: "object", properties: { name: { type: "string" }, children } };
    const { problems } = compile({ ...tree, required: ["name"] }, "schema");
    assert.equal(problems({ name: "a", children: [{ name: "b", children: [{ name: "c" }] }] }), null);
    assert.equal(
      problems({ name: "a", children: [{ name: "b", children: [{}] }] }),
      "result.children[0].children[0].name is required",
    );
  }
});

test("schema of a request that is its own definition is refused and not run until the stack ends", () => {
  for (const circle of [{ $ref: "#" }, { allOf: [{ $ref: "#" }] }]) {
    refuses(() => compile({ type: "object", ...circle }, "schema").problems({}), /cannot be checked|does not compile/);
  }
});

test("schema of a request with many conditions over a large value neither blocks nor fills the memory", () => {
  const conditions = Array.from({ length: 600 }, (_, index) => ({ maximum: -index }));
  const { problems } = compile({ type: "array", items: { allOf: conditions } }, "schema");
  assert.match(
    problems([2])!,
    /^result\[0\] must be <= 0; result\[0\] must be <= -1; /,
    "a small one has all problems",
  );
  const before = process.memoryUsage().heapTotal;
  assert.match(
    problems(Array(50_000).fill(2))!,
    /^result\[0\] must be <= 0; [^;]*(?:; [^;]*){18}$/,
    "the first twenty",
  );
  refuses(() => problems(Array(50_000).fill(-600)), /cannot be checked/);
  assert.ok(process.memoryUsage().heapTotal - before < 256 * 1024 * 1024);
});
