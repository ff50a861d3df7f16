/** Schemas of clients are read, not compiled: what they say must be what Ajv, which checks everything else, makes of them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import fc from "fast-check";
import { SchemaRateLimit } from "../../../core/client-schema/rate.ts";
import { createClientSchemas } from "../../../core/client-schema/schemas.ts";
import { ServiceError } from "../../../core/lib/errors.ts";
import { describeProblems } from "../../../core/lib/json-schema.ts";

const names = fc.constantFrom("a", "b", "cc");
const small = fc.integer({ min: 0, max: 3 });
const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.constantFrom(null, true, false, 0, 1, 2, 2.5, -1, "", "a", "cc", "2026-11-22", "😀"),
    fc.array(tie("value"), { maxLength: 3 }),
    fc.dictionary(names, tie("value"), { maxKeys: 3 }),
  ),
}));
const { schema } = fc.letrec<{ schema: unknown }>((tie) => {
  const inner = tie("schema");
  const list = fc.array(inner, { minLength: 1, maxLength: 3 });
  const map = fc.dictionary(names, inner, { maxKeys: 2 });
  return {
    schema: fc.oneof(
      { maxDepth: 3 },
      fc.boolean(),
      fc.record(
        {
          type: fc.constantFrom(
            "string",
            "number",
            "integer",
            "array",
            "object",
            ["null", "boolean"],
            ["object", "array"],
          ),
          enum: fc.array(value, { minLength: 1, maxLength: 3 }),
          const: value,
          minimum: small,
          exclusiveMaximum: small,
          multipleOf: fc.constantFrom(1, 0.5),
          minLength: small,
          maxLength: small,
          pattern: fc.constantFrom("^a", "c$", "\\d"),
          format: fc.constantFrom("date", "email", "unknown"),
          minItems: small,
          maxItems: small,
          uniqueItems: fc.boolean(),
          required: fc.uniqueArray(names),
          maxProperties: small,
          properties: map,
          patternProperties: fc.dictionary(fc.constantFrom("^a", "c"), inner, { maxKeys: 2 }),
          additionalProperties: inner,
          propertyNames: inner,
          items: inner,
          prefixItems: list,
          contains: inner,
          minContains: small,
          allOf: list,
          anyOf: list,
          oneOf: list,
          not: inner,
          if: inner,
          then: inner,
          else: inner,
          dependentRequired: fc.dictionary(names, fc.uniqueArray(names), { maxKeys: 1 }),
          dependentSchemas: map,
          unevaluatedProperties: inner,
          unevaluatedItems: inner,
          $ref: fc.constantFrom("#/$defs/text", "#/$defs/list"),
        },
        { requiredKeys: [] },
      ),
    ),
  };
});

const $defs = { text: { type: "string" }, list: { type: "array", items: { type: "integer" } } };

/** Null where the code that Ajv made fails: it does for some that follow what was evaluated through `anyOf`. */
function fits(validate: (value: unknown) => unknown, one: unknown): boolean | null {
  try {
    return validate(one) as boolean;
  } catch (error) {
    assert.ok(error instanceof TypeError || error instanceof ReferenceError);
    return null;
  }
}

test("schema of a request: whether a value fits is what Ajv says, for every keyword", () => {
  const prepare = createClientSchemas();
  const agrees = (inner: unknown, values: unknown[]) => {
    const whole = { type: ["object", "array", "string", "number", "boolean", "null"], allOf: [inner], $defs };
    const ajv = new Ajv2020({ allErrors: true, strict: false, validateSchema: false, logger: false });
    formats.default(ajv);
    const validate = ajv.compile(structuredClone(whole));
    const { problems } = prepare(whole, "schema");
    for (const one of values) {
      const said = problems(one);
      const expected = fits(validate, one);
      if (expected !== null)
        assert.equal(said === null, expected, `${JSON.stringify(whole)} ${JSON.stringify(one)} ${said}`);
    }
  };
  fc.assert(fc.property(schema, fc.array(value, { minLength: 8, maxLength: 8 }), agrees), { numRuns: 40 });
});

const TOLD: [schema: object, value: unknown][] = [
  [
    { type: "object", required: ["a"], properties: { b: { type: "number" } }, additionalProperties: false },
    { b: "x", c: 1 },
  ],
  [{ type: "array", items: { type: "string", minLength: 2, maxLength: 3 }, maxItems: 1 }, ["a", "abcd"]],
  [{ type: "integer", minimum: 3, multipleOf: 2 }, 1],
  [{ type: "string", pattern: "^a$", format: "date" }, "b"],
  [{ type: ["string", "null"] }, 1],
  [
    { type: "object", properties: { kind: { enum: ["x", "y"] }, one: { const: 1 } } },
    { kind: "z", one: 2 },
  ],
  [{ type: "object", anyOf: [{ required: ["a"] }, { required: ["b"] }] }, {}],
  [{ type: "object", oneOf: [{}, {}] }, {}],
  [{ type: "object", not: { required: ["a"] } }, { a: 1 }],
  [
    { type: "object", unevaluatedProperties: false, properties: { a: {} } },
    { a: 1, b: 2 },
  ],
  [{ type: "object", dependentRequired: { a: ["b"] } }, { a: 1 }],
];

test("schema of a request: what does not fit is told in the words of every other check", () => {
  const prepare = createClientSchemas();
  for (const [said, given] of TOLD) {
    const ajv = new Ajv2020({ allErrors: true, strict: false, logger: false });
    formats.default(ajv);
    const validate = ajv.compile(structuredClone(said));
    validate(given);
    const words = (text: string | null) => text!.replace(/, .*/, "").split("; ").sort();
    assert.deepEqual(
      words(prepare(said, "schema").problems(given)),
      words(describeProblems(validate.errors, "result")),
    );
  }
});

/** 55 KB of which no two are the same. */
const large = (seed: number) => {
  const properties: Record<string, object> = {};
  for (let at = 0; at < 700; at++)
    properties[`field_${seed}_${at}`] = { type: "string", minLength: 1, description: "what it is about" };
  return { type: "object", properties };
};

test("schema of a request: three hundred different ones of 55 KB leave no more than the bound of what is kept", () => {
  const prepare = createClientSchemas();
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const grown = () => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  for (let seed = 0; seed < 100; seed++) prepare(large(seed), "schema");
  const before = grown();
  for (let seed = 100; seed < 400; seed++) prepare(large(seed), "schema").problems({});
  // Compiled, each took up more than 2 MB.
  const each = (grown() - before) / 300;
  assert.ok(each < 100_000, `${Math.round(each)} bytes of memory each`);
  assert.notEqual(prepare(large(0), "schema"), prepare(large(1), "schema"));
});

test("schema of a request: equal items are found in a time that grows with their number", () => {
  const { problems } = createClientSchemas()({ type: "array", uniqueItems: true }, "schema");
  const items = Array.from({ length: 20_000 }, (_, at) => ({ at, more: [at] }));
  assert.equal(problems(items), null);
  assert.match(problems([...items, { more: [7], at: 7 }])!, /items ## 7 and 20000 are identical/);
});

test("rate of new schemas: a caller that has sent 4 MiB of them within a minute is told when to come again, others are not", () => {
  let now = 0;
  const prepare = createClientSchemas("result", new SchemaRateLimit(() => now));
  const send = (caller: string, seed: number) => {
    try {
      prepare(large(seed), "schema", caller);
      return 0;
    } catch (error) {
      assert.ok(error instanceof ServiceError && error.kind === "rate_limited", String(error));
      return error.facts?.retryAfter ?? Number.NaN;
    }
  };
  let seed = 0;
  while (send("a", seed) === 0) seed++;
  const bytes = JSON.stringify(large(100)).length;
  assert.ok(seed * bytes > 3.8 * 2 ** 20 && seed * bytes < 4.2 * 2 ** 20, `${seed} of ${bytes}`);
  assert.equal(send("b", 1_000), 0);
  assert.equal(send("a", seed - 1), 0, "what is known costs nothing");
  now = 45_500;
  assert.equal(send("a", seed), 15);
  now = 60_000;
  assert.equal(send("a", seed), 0);
});
