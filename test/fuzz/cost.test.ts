/** The search for requests that cost more than their size: every validator, over bodies made from its own schema. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { describeProblems } from "../../core/lib/json-schema.ts";
import { validators } from "../../generated/all-validators.js";
import { LONG, spread } from "../support/at-length.ts";
import { manifestSchemas, schemas } from "../support/schemas.ts";
import { findExcess } from "./cost-meter.ts";
import { growthsOf } from "./growing-values.ts";
import { type Json, type Resolve, type Schema, sample } from "./schema-values.ts";

interface Check {
  (value: Json): boolean;
  errors?: object[] | null;
}

const ALL: Readonly<Record<string, Schema>> = { ...schemas, ...manifestSchemas };
const resolve: Resolve = (reference) => ALL[reference.slice(reference.lastIndexOf("/") + 1)]!;

/** What comes from outside; at length also what the service itself sends, which its clients may check by these schemas. */
const isInput = (name: string) => /(Request|Query)$/.test(name) || name === "Manifest" || name === "AgentInput";

/** Bodies of one schema: a manifest has thousands of forms, which are much alike. */
const MOST_FORMS = LONG ? 300 : 60;

/** Errors that are kept of one value: some for each list and map, however long these are. */
const MOST_ERRORS = 5_000;

describe("every schema", () => {
  for (const [name, schema] of Object.entries(ALL)) {
    if (!LONG && !isInput(name)) continue;
    test(`${name}: checking a value of it costs no more than its size`, async () => {
      const check = validators[name as keyof typeof validators] as Check;
      const found: string[] = [];
      for (const { title, text } of spread([...growthsOf(schema, resolve)], MOST_FORMS)) {
        let most = 0;
        const excess = await findExcess((size) => {
          const json = text(size);
          const parsed = JSON.parse(json) as Json;
          return {
            bytes: Buffer.byteLength(json),
            work() {
              if (check(parsed)) return;
              most = Math.max(most, check.errors!.length);
              assert.ok(describeProblems(check.errors as never).length < 30_000, title);
            },
          };
        });
        if (excess !== null) found.push(`${title}: ${JSON.stringify(excess)}`);
        if (most > MOST_ERRORS) found.push(`${title}: ${most} errors`);
      }
      assert.deepEqual(found, []);
    });
  }
});

test("bodies of the search are no nonsense: the plainest one of every request is valid", () => {
  const refused = Object.entries(schemas)
    .filter(([name]) => /(Request|Query)$/.test(name))
    .filter(([name, schema]) => !(validators[name as keyof typeof validators] as Check)(sample(schema, resolve)));
  assert.deepEqual(
    refused.map(([name, schema]) => [name, sample(schema, resolve)]),
    [],
  );
});
