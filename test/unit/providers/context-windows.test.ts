/** How long prompts may be: what is known of models by name, and what their providers say and count. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { knownContextWindow } from "../../../core/models/context-windows.ts";
import { learnedNothing, learnTokens, statedLimit } from "../../../core/models/refusals.ts";

test("the context window of common models is known by their names, with and without a vendor and a date", () => {
  const known = {
    "gpt-4o-mini": 128_000,
    "gpt-4": 8_192,
    "gpt-4-0613": 8_192,
    "gpt-4.1-nano": 1_047_576,
    "gpt-5.1-codex": 400_000,
    "o3-mini": 200_000,
    "o1-preview-2024-09-12": 128_000,
    "claude-3-5-haiku-20241022": 200_000,
    "anthropic/claude-sonnet-4.5": 200_000,
    "us.anthropic.claude-sonnet-4-20250514-v1:0": 200_000,
    "openrouter/google/gemini-2.5-pro": 1_048_576,
    "models/gemini-1.5-pro": 2_097_152,
    "Grok-4-fast": 256_000,
  };
  for (const [model, window] of Object.entries(known)) assert.equal(knownContextWindow(model), window, model);
  for (const model of ["echo", "my-gpt-4", "llama3", "", "constructor"])
    assert.equal(knownContextWindow(model), undefined, model);
});

test("the limit in a provider's refusal is read wherever its message stands", () => {
  const messages = {
    "This model's maximum context length is 8192 tokens. However, you requested 12000 tokens (10000 in the messages, 2000 in the completion).":
      { limit: 8192, used: 12_000 },
    "prompt is too long: 210,000 tokens > 200,000 maximum": { limit: 200_000, used: 210_000 },
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).": {
      limit: 1_048_576,
      used: 1_200_000,
    },
    "Your input exceeds the context window of this model.": null,
    "maximum of 10 images": null,
  };
  for (const [message, expected] of Object.entries(messages)) {
    assert.deepEqual(statedLimit(new Error(message)), expected);
    assert.deepEqual(statedLimit(new Error("failed", { cause: { error: { message } } })), expected);
  }
  const circle: Record<string, unknown> = { message: "x" };
  circle.cause = circle;
  assert.equal(statedLimit(circle), null);
});

test("the ratio of tokens follows what is counted, and short prompts and odd counts do not move it far", () => {
  const scale = learnedNothing();
  for (let call = 0; call < 30; call++) learnTokens(scale, 1000, 1500);
  assert.ok(Math.abs(scale.ratio - 1.5) < 0.01, String(scale.ratio));
  learnTokens(scale, 10, 500);
  learnTokens(scale, 1000, 0);
  assert.ok(Math.abs(scale.ratio - 1.5) < 0.01);
  for (let call = 0; call < 100; call++) learnTokens(scale, 1000, 1);
  assert.equal(scale.ratio, 0.5);
});
