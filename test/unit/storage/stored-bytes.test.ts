/** The bound of what one user has stored, while commits overlap. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { conversationRows } from "../../../core/storage/keys.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";
import { boundUsers } from "../../../core/storage/stored-bytes.ts";

/** A user's store with room for 1,000 bytes, and reads that a test holds back once they have read. */
async function bounded() {
  const store = createMemoryStore();
  let gate: Promise<void> | undefined;
  let release = () => {};
  const slow: Store = {
    ...store,
    async getMany(keys, ...rest) {
      const rows = await store.getMany(keys, ...rest);
      await gate;
      return rows;
    },
  };
  const users = await boundUsers(slow, () => {});
  users.bound(1_000);
  return {
    /** Stores so many bytes of a conversation. */
    save: (number: number, bytes: number) =>
      users.store.commit({
        put: [[`${conversationRows(number)}m`, "x".repeat(bytes)]],
        of: [{ userId: "ada", memory: "default", number }],
      }),
    hold() {
      gate = new Promise((resolve) => {
        release = () => {
          gate = undefined;
          resolve();
        };
      });
    },
    /** Those that read from now on are not held. */
    pass() {
      gate = undefined;
    },
    release: () => release(),
  };
}

const tooLarge = { kind: "too_large" };

test("server.limits.stored: what is stored while another request reads how much there is counts for that one", async () => {
  const { save, hold, pass, release } = await bounded();
  hold();
  const late = save(1, 600);
  // It has read by then.
  await new Promise(setImmediate);
  pass();
  await save(2, 600);
  release();
  await assert.rejects(late, tooLarge);
});

test("server.limits.stored: a request that read what was stored meanwhile is not refused for having seen it twice", async () => {
  const { save, hold, pass, release } = await bounded();
  await save(1, 100);
  hold();
  const late = save(2, 300);
  await new Promise(setImmediate);
  pass();
  await save(3, 400);
  release();
  await late;
  await assert.rejects(save(4, 300), tooLarge);
});
