import assert from "node:assert/strict";
import { test } from "node:test";
import { DEFAULT_SETTINGS, resolveOptions } from "../../../core/agents/run/options.ts";

test("options left out take the defaults of the contract's table", () => {
  const settings = resolveOptions({}, DEFAULT_SETTINGS);
  assert.deepEqual(settings, DEFAULT_SETTINGS);
  assert.equal(settings.temperature, 0.7);
  assert.equal(settings.maxOutputTokens, 4000);
  assert.equal(settings.topP, 1);
  assert.equal(settings.frequencyPenalty, 0);
  assert.equal(settings.presencePenalty, 0);
  assert.equal(settings.memory.contextLimit, 10);
  assert.equal(settings.memory.readOnly, false);
  assert.deepEqual(settings.memory.semanticMemory, {
    enabled: undefined,
    semanticLimit: 5,
    semanticThreshold: 0.7,
    mergeStrategy: "append",
  });
  assert.deepEqual(settings.memory.conversationPersistence, { mode: "step", debounceMs: 200, flushOnToolResult: true });
});

test("a request's option beats the agent's, which beats the table, each field alone", () => {
  const agent = resolveOptions({ temperature: 0.2, maxOutputTokens: 50, seed: 7 }, DEFAULT_SETTINGS);
  const settings = resolveOptions({ temperature: 0, stopSequences: ["x"] }, agent);
  assert.equal(settings.temperature, 0);
  assert.equal(settings.maxOutputTokens, 50);
  assert.equal(settings.seed, 7);
  assert.equal(settings.topP, 1);
  assert.deepEqual(settings.stopSequences, ["x"]);
});

test("a field under memory beats its deprecated twin, each field alone", () => {
  const { memory } = resolveOptions(
    {
      userId: "old",
      conversationId: "old-conversation",
      contextLimit: 3,
      semanticMemory: { enabled: false, semanticLimit: 9 },
      conversationPersistence: { mode: "finish", debounceMs: 5 },
      memory: {
        userId: "new",
        options: { contextLimit: 0, semanticMemory: { semanticLimit: 2 }, conversationPersistence: { debounceMs: 7 } },
      },
    },
    DEFAULT_SETTINGS,
  );
  assert.equal(memory.userId, "new");
  assert.equal(memory.conversationId, "old-conversation");
  assert.equal(memory.contextLimit, 0);
  assert.deepEqual(memory.semanticMemory, {
    enabled: false,
    semanticLimit: 2,
    semanticThreshold: 0.7,
    mergeStrategy: "append",
  });
  assert.deepEqual(memory.conversationPersistence, { mode: "finish", debounceMs: 7, flushOnToolResult: true });
});

test("options that nobody documented do not reach the engine", () => {
  const settings = resolveOptions(
    { temperature: 0.1, topK: 5, headers: { a: "b" }, abortSignal: 1 } as object,
    DEFAULT_SETTINGS,
  );
  assert.deepEqual(Object.keys(settings).sort(), Object.keys(DEFAULT_SETTINGS).sort());
});
