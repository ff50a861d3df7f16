import assert from "node:assert/strict";
import { test } from "node:test";
import { createSchemaCompiler } from "../../core/lib/json-schema.ts";
import { schemaProblems } from "../../core/lib/schema-shape.ts";
import { unknownKeywords } from "../../core/manifest/unknown-keywords.ts";

test("a schema that is one has no problem, whatever else it says", () => {
  const schema = {
    $schema: "http://json-schema.org/draft-07/schema#",
    type: ["object", "null"],
    properties: {
      type: { const: "x" },
      required: true,
      list: { type: "array", items: { minLength: 0 }, uniqueItems: true },
    },
    required: [],
    anyOf: [{ minProperties: 1 }, false],
    additionalProperties: { not: { pattern: "^x-" } },
    "x-own": { type: "strin" },
    examples: [1],
    default: { type: 1 },
  };
  assert.deepEqual(schemaProblems(schema), []);
  assert.equal(createSchemaCompiler().compile(schema)({ type: "x", list: ["a"] }), true);
});

test("every keyword with a wrong value is a problem with its path", () => {
  assert.deepEqual(
    schemaProblems({
      type: "strin",
      properties: { a: { type: [] }, b: 1, c: { minimum: "1", multipleOf: 0, maxLength: 1.5 } },
      required: "a",
      allOf: [],
      oneOf: [{}, { uniqueItems: "yes" }],
      items: [{}],
      pattern: "(",
      enum: "x",
      title: 1,
    }),
    [
      'type must be array, boolean, integer, null, number, object or string, not "strin"',
      "properties.a.type must be array, boolean, integer, null, number, object or string, not []",
      "properties.b must be an object, true or false",
      "properties.c.minimum must be a number",
      "properties.c.multipleOf must be a number above 0",
      "properties.c.maxLength must be a whole number, 0 or more",
      "required must be a list of strings",
      "allOf must be a list of schemas, at least one",
      "oneOf[1].uniqueItems must be true or false",
      "items must be an object, true or false",
      "pattern is not a regular expression: Invalid regular expression: /(/u: Unterminated group",
      "enum must be a list",
      "title must be a string",
    ],
  );
});

test("a compiler takes two schemas with one $id, and says what is wrong with one that is none", () => {
  const compiler = createSchemaCompiler();
  const text = compiler.compile({ $id: "https://example.com/x", type: "string" });
  const number = compiler.compile({ $id: "https://example.com/x", type: "number" });
  assert.deepEqual([text("a"), text(1), number("a"), number(1)], [true, false, false, true]);
  assert.throws(() => compiler.compile({ type: "nope" }), /^Error: type must be .*, not "nope"$/);
});

test("unknownKeywords finds what no draft knows at every depth, and nothing else", () => {
  const known = {
    $schema: "http://json-schema.org/draft-07/schema#",
    id: "a",
    definitions: { type: { type: "string", const: "propertys", default: { propertys: 1 } } },
    items: [{ type: "string" }, true],
    additionalItems: { minLength: 1 },
    dependencies: { a: ["b"], b: { required: ["a"] } },
    dependentRequired: { a: ["b"] },
    properties: {
      propertys: { nullable: true, example: 1, "x-any": { propertys: {} } },
      enum: { enum: [{ propertys: 1 }] },
    },
    prefixItems: [{}],
    examples: [{ propertys: 1 }],
  };
  assert.deepEqual(unknownKeywords(known), []);
  assert.deepEqual(unknownKeywords(true), []);
  const wrong = {
    not: { propertys: 1 },
    anyOf: [{}, { items: { mimimum: 1 } }],
    $defs: { a: { Type: "x" } },
    if: { X: 1 },
  };
  assert.deepEqual(
    unknownKeywords(wrong).map(({ path }) => path.join("/")),
    ["not/propertys", "anyOf/1/items/mimimum", "$defs/a/Type", "if/X"],
  );
});
