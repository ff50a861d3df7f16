/** Objects made to fit a schema, checked by Ajv: what the offline model says when it is asked for JSON. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createSchemaCompiler } from "../../../core/lib/json-schema.ts";
import { fitSchema } from "../../../core/models/scripted/replies.ts";

const SCHEMAS: [string, Record<string, unknown>][] = [
  [
    "an object with every type",
    {
      type: "object",
      properties: {
        s: { type: "string" },
        n: { type: "number" },
        i: { type: "integer" },
        b: { type: "boolean" },
        z: { type: "null" },
        a: { type: "array", items: { type: "string" } },
        o: { type: "object", properties: { x: { type: "string" } }, required: ["x"] },
      },
      required: ["s", "n", "i", "b", "z", "a", "o"],
      additionalProperties: false,
    },
  ],
  [
    "bounds of numbers",
    {
      type: "object",
      properties: {
        a: { type: "integer", minimum: 5, maximum: 7 },
        b: { type: "number", exclusiveMinimum: 0, maximum: 1 },
        c: { type: "integer", multipleOf: 7, minimum: 10 },
        d: { type: "integer", maximum: -3 },
      },
      required: ["a", "b", "c", "d"],
    },
  ],
  [
    "bounds of strings",
    {
      type: "object",
      properties: { a: { type: "string", minLength: 30 }, b: { type: "string", maxLength: 3 } },
      required: ["a", "b"],
    },
  ],
  [
    "formats",
    {
      type: "object",
      properties: Object.fromEntries(
        ["date-time", "date", "email", "uri", "uuid", "ipv4", "ipv6", "hostname"].map((format) => [
          format,
          { type: "string", format },
        ]),
      ),
    },
  ],
  ["bounds of arrays", { type: "array", minItems: 3, maxItems: 4, items: { type: "integer" } }],
  ["tuples", { type: "array", prefixItems: [{ type: "string" }, { type: "integer" }], items: false, minItems: 2 }],
  [
    "enum and const",
    { type: "object", properties: { e: { enum: ["x", "y"] }, c: { const: 3 } }, required: ["e", "c"] },
  ],
  [
    "a union",
    {
      type: "object",
      properties: {
        u: { anyOf: [{ type: "null" }, { type: "object", properties: { k: { const: "v" } }, required: ["k"] }] },
      },
      required: ["u"],
    },
  ],
  [
    "allOf",
    {
      allOf: [
        { type: "object", properties: { a: { type: "string" } }, required: ["a"] },
        { type: "object", properties: { b: { type: "integer", minimum: 2 } }, required: ["b"] },
      ],
    },
  ],
  ["a list of types", { type: ["null", "integer"], minimum: 4 }],
  [
    "references",
    {
      $ref: "#/$defs/Node",
      $defs: {
        Node: {
          type: "object",
          properties: { name: { type: "string" }, next: { $ref: "#/$defs/Node" } },
          required: ["name"],
          additionalProperties: false,
        },
      },
    },
  ],
  ["required keys without a schema", { type: "object", required: ["__proto__", "anything"] }],
];

for (const [title, schema] of SCHEMAS) {
  test(`the object for a schema with ${title} fits it`, () => {
    const validate = createSchemaCompiler().compile(schema);
    const value = JSON.parse(JSON.stringify(fitSchema(schema, undefined, "What is the weather?")));
    assert.ok(validate(value), `${JSON.stringify(value)}: ${JSON.stringify(validate.errors)}`);
  });
}

test("the same schema and text give the same object", () => {
  for (const [, schema] of SCHEMAS) {
    assert.equal(JSON.stringify(fitSchema(schema, undefined, "x")), JSON.stringify(fitSchema(schema, undefined, "x")));
  }
});

const HOSTILE: [string, Record<string, unknown>][] = [
  [
    "arrays of a billion items in arrays of a billion items",
    { type: "array", minItems: 1e9, items: { type: "array", minItems: 1e9, items: { type: "array", minItems: 1e9 } } },
  ],
  ["a string of a billion characters", { type: "string", minLength: 1e9 }],
  [
    "a required reference to itself",
    { type: "object", properties: { a: { $ref: "#" }, b: { $ref: "#" } }, required: ["a", "b"] },
  ],
  [
    "references that double at every step",
    {
      $ref: "#/$defs/n0",
      $defs: Object.fromEntries(
        Array.from({ length: 40 }, (_, n) => [
          `n${n}`,
          { allOf: [{ $ref: `#/$defs/n${n + 1}` }, { $ref: `#/$defs/n${n + 1}` }] },
        ]),
      ),
    },
  ],
  ["a reference to itself alone", { $ref: "#" }],
  ["a reference to nothing", { $ref: "#/$defs/%zz/~9" }],
];

for (const [title, schema] of HOSTILE) {
  test(`a schema with ${title} is fitted to a provider in less than a megabyte`, () => {
    const json = JSON.stringify(fitSchema(schema, undefined, "x"));
    assert.ok(json.length < 1_000_000);
  });
}
