/** Conversations in `memory:` are bounded together. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { openMemories, said, textsOf } from "../../support/memories.ts";
import { until } from "../../support/probe.ts";

const MIB = 1024 * 1024;
const SPACES = ["c/", "id/", "iu/", "u/", "r/"];

test("conversations in memory: take 48 MiB together, and those that changed least recently are removed with all their rows", async () => {
  const store = createMemoryStore();
  const { access } = await openMemories({ store });
  const held = () => SPACES.reduce((sum, space) => sum + (store.held?.(space) ?? 0), 0);
  const long = "x".repeat(100_000);
  const create = (id: string) => access.create({ id, userId: "ada", resourceId: "desk" });
  const save = (id: string, text: string) => access.save([{ conversationId: id, message: said(text) }]);
  await create("in use");
  for (let count = 0; count < 1_000; count++) {
    await create(`c${count}`);
    await save(`c${count}`, long);
    if (count % 100 === 0) await save("in use", `at ${count}`);
    assert.ok(held() < 50 * MIB, `${held()} bytes after ${count}`);
  }
  assert.equal((await textsOf(access, "in use")).length, 10);
  assert.deepEqual(await textsOf(access, "c999"), [long]);
  await assert.rejects(access.get("c0"), /does not exist/);
  // Those that are left are listed, counted and found, and nothing is left of the others.
  const left = (await store.scan({ prefix: "u/", limit: 2_000 })).length;
  assert.ok(left > 400 && left < 520, `${left} conversations are left`);
  for (const prefix of ["id/", "r/"]) assert.equal((await store.scan({ prefix, limit: 2_000 })).length, left, prefix);
  const [total] = await store.scan({ prefix: "n/", limit: 1 });
  assert.equal(total?.value, String(left));
});

test("a conversation in memory: that takes more than 48 MiB by itself stays until another one changes", async () => {
  const store = createMemoryStore();
  const { access } = await openMemories({ store });
  await access.create({ id: "huge", userId: "ada", resourceId: "desk" });
  for (let count = 0; count < 13; count++)
    await access.save([{ conversationId: "huge", message: said("x".repeat(4 * MIB)) }]);
  assert.equal((await store.scan({ prefix: "c/", limit: 100 })).filter(({ value }) => value.length > MIB).length, 13);
  await access.create({ id: "small", userId: "ada", resourceId: "desk" });
  await until(() => (store.held?.("c/") ?? 0) < MIB, "its removal");
  await assert.rejects(access.get("huge"), /does not exist/);
  assert.equal((await access.get("small")).id, "small");
});
