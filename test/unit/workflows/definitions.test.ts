/** Definitions kept in memory: those of the manifest always, those of the past up to a bound. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { definitionKey } from "../../../core/storage/keys.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { WorkflowDefinition } from "../../../core/workflows/definition/definition.ts";
import { Definitions } from "../../../core/workflows/definition/definitions.ts";

const definitionOf = (hash: string) => ({ hash, outline: new Map() }) as unknown as WorkflowDefinition;

test("definitions of the past are linked again when they are too many to keep; those of the manifest never", async () => {
  const store = createMemoryStore();
  const hashes = Array.from({ length: 300 }, (_, index) => `past-${index}`);
  const text = JSON.stringify({ workflowId: "w", workflows: { w: { steps: [] } } });
  await store.commit({ put: hashes.map((hash): [string, string] => [definitionKey(hash), text]) });
  const linked: string[] = [];
  const current = { definition: definitionOf("present"), text };
  const definitions = new Definitions(store, new Map([["w", current]]), (_pinned, hash) => {
    linked.push(hash);
    return definitionOf(hash);
  });
  for (const hash of hashes) await definitions.pinned(hash);
  assert.deepEqual(linked, hashes);
  linked.length = 0;
  // The last one is at hand, the first one is not any more.
  await definitions.pinned(hashes.at(-1)!);
  assert.deepEqual(linked, []);
  assert.equal((await definitions.pinned(hashes[0]!)).hash, hashes[0]);
  assert.deepEqual(linked, [hashes[0]]);
  assert.equal(await definitions.pinned("present"), current.definition);
  assert.deepEqual(linked, [hashes[0]]);
});
