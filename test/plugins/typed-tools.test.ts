/** `defineTool` gives input and `config` the types of their schemas. `npm run typecheck` fails when one of them is another type. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { defineTool } from "#plugin";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? [] : [never];
/** Does not compile unless both types are one. */
const same = <A, B>(..._same: Same<A, B>): void => {};

test("defineTool: input and config have the types of literal schemas, with keys that have a default always in config", () => {
  const tool = defineTool({
    parameters: {
      type: "object",
      properties: {
        city: { type: "string", minLength: 1 },
        unit: { enum: ["C", "F"] },
        kind: { const: "now" },
        days: { type: "integer", default: 3 },
        tags: { type: "array", items: { type: "string" } },
        who: { type: ["string", "null"] },
        either: { anyOf: [{ type: "string" }, { type: "boolean" }] },
        both: {
          allOf: [
            { type: "object", properties: { a: { type: "number" } }, required: ["a"] },
            { type: "object", properties: { b: { type: "string" } } },
          ],
        },
        inner: { type: "object", properties: { a: { type: "boolean" } }, required: ["a"] },
        counts: { type: "object", additionalProperties: { type: "number" } },
        other: { $ref: "#/$defs/other" },
      },
      required: ["city", "unit"],
    },
    config: { type: "object", properties: { rate: { type: "number", default: 2 }, note: { type: "string" } } },
    execute(input, { config }) {
      type Input = typeof input;
      same<Pick<Input, "city" | "unit">, { city: string; unit: "C" | "F" }>();
      same<Input["kind"], "now" | undefined>();
      same<Input["days"], number | undefined>();
      same<Input["tags"], string[] | undefined>();
      same<Input["who"], string | null | undefined>();
      same<Input["either"], string | boolean | undefined>();
      same<Input["both"], { a: number; b?: string } | undefined>();
      same<Input["inner"], { a: boolean } | undefined>();
      same<Input["counts"], Record<string, number> | undefined>();
      same<Input["other"], unknown>();
      same<typeof config, { rate: number; note?: string }>();
      return input.city.length * config.rate;
    },
  });
  assert.equal(tool.execute({ city: "Lisbon", unit: "C" }, { config: { rate: 2 } } as never), 12);
});

test("defineTool: a type that the author states counts, and a tool without schemas takes anything", () => {
  const stated = defineTool<{ text: string }>({ parameters: { type: "object" }, execute: ({ text }) => text.length });
  const annotated = defineTool({
    parameters: { type: "object", properties: { day: { type: "string" } }, required: ["day"] },
    execute: (input: { day: "mon" | "tue" }) => input.day,
  });
  const loose = defineTool({ execute: ({ a }, { config }) => [a.b, config.c] });
  assert.deepEqual([stated.kind, annotated.kind, loose.kind], ["tool", "tool", "tool"]);
  // @ts-expect-error a property that the schema does not name
  defineTool({ parameters: { type: "object", properties: { a: { type: "number" } } }, execute: ({ b }) => b });
  // @ts-expect-error a number is no text
  defineTool({ parameters: { type: "object", properties: { a: { type: "number" } } }, execute: (i) => i.a?.trim() });
  // @ts-expect-error a misspelt key
  defineTool({ descripton: "x", parameters: { type: "object" }, execute: () => 1 });
});
