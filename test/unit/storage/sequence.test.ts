import assert from "node:assert/strict";
import { test } from "node:test";
import { unavailable } from "../../../core/lib/errors.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { createSequence } from "../../../core/storage/sequence.ts";

test("a store that cannot reserve rejects who needs a number, and numbers go on when it can, none twice", async () => {
  const memory = createMemoryStore();
  let broken = false;
  const commit: typeof memory.commit = async (change) => {
    if (broken) throw unavailable("storage is unavailable");
    return memory.commit(change);
  };
  const sequence = await createSequence({ ...memory, commit }, "s/x", [], 8);
  const given: number[] = [];
  broken = true;
  for (let count = 0; count < 8; count++) given.push(await sequence.next());
  await assert.rejects(async () => sequence.next(), /storage is unavailable/);
  await assert.rejects(async () => sequence.next(), /storage is unavailable/);
  broken = false;
  const more = await Promise.all(Array.from({ length: 50 }, () => sequence.next()));
  assert.equal(new Set([...given, ...more]).size, 58);
  assert.deepEqual(
    [...given, ...more],
    [...given, ...more].sort((a, b) => a - b),
  );
});

test("numbers come without a promise while the reserved block lasts, and a restart leaves a gap but repeats none", async () => {
  const store = createMemoryStore();
  const first = await createSequence(store, "s/x", [], 8);
  assert.deepEqual([first.next(), first.next()], [1, 2]);
  const second = await createSequence(store, "s/x", [], 8);
  assert.equal(second.next(), 9);
});
