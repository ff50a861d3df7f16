/** What tokens cost, and how usage adds up over steps. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { addUsage, costOf, toUsage, zeroUsage } from "../../../core/agents/run/usage.ts";
import { usage } from "../../support/agents.ts";

const PRICES = { input: 3, output: 15, cachedInput: 0.3 };
const used = (promptTokens: number, completionTokens: number, more: object = {}) => ({
  ...usage(promptTokens, completionTokens),
  ...more,
});

test("the price of cached input replaces that of input for cached tokens alone", () => {
  assert.equal(costOf(used(1_000_000, 0, { cachedInputTokens: 400_000 }), PRICES), 1.92);
  assert.equal(costOf(used(1_000_000, 0, { cachedInputTokens: 400_000 }), { input: 3, output: 15 }), 3);
  assert.equal(costOf(used(1_000_000, 1_000_000, { cachedInputTokens: 1_000_000 }), { ...PRICES, cachedInput: 0 }), 15);
});

test("reasoning is part of the output and is not paid twice", () => {
  assert.equal(costOf(used(0, 1_000_000, { reasoningTokens: 900_000 }), PRICES), 15);
});

test("counts that a provider leaves out of its totals are paid beside them", () => {
  assert.equal(costOf(used(100_000, 0, { cachedInputTokens: 1_000_000 }), PRICES), 0.6);
  assert.equal(costOf(used(0, 100_000, { reasoningTokens: 900_000 }), PRICES), 15);
});

for (const wrong of ["7", -5, Number.NaN, Number.POSITIVE_INFINITY, 1.5, {}, null])
  test(`a count of tokens that is ${typeof wrong === "number" ? wrong : JSON.stringify(wrong)} counts as none`, () => {
    const each = wrong as never;
    const [inputTokens, outputTokens] = [
      { total: each, cacheRead: each },
      { total: 2, reasoning: each },
    ];
    const used = toUsage({ inputTokens, outputTokens } as unknown as Parameters<typeof toUsage>[0]);
    assert.deepEqual(used, usage(0, 2));
  });

test("costs add up without errors of binary fractions", () => {
  const sum = zeroUsage();
  for (let step = 0; step < 3; step++) addUsage(sum, used(1, 1, { cost: 0.1 }));
  assert.deepEqual(sum, used(3, 3, { cost: 0.3 }));
});

test("a sum has a cost only when everything in it that has tokens has one", () => {
  const sum = zeroUsage();
  addUsage(sum, used(1, 1, { cost: 1 }));
  addUsage(sum, zeroUsage());
  assert.equal(sum.cost, 1);
  addUsage(sum, used(1, 1));
  assert.ok(!("cost" in sum));
  addUsage(sum, used(1, 1, { cost: 1 }));
  assert.ok(!("cost" in sum));
});
