/** The cache of verified tokens. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createTokenCache, digestToken } from "../../../core/auth/provider.ts";

const identity = (id: string) => ({ user: { id }, expires: null, refusedFrom: null });

test("a token is known until its time, and not a millisecond longer", () => {
  const cache = createTokenCache();
  cache.set("a", identity("ada"), 1000);
  assert.deepEqual(cache.get("a", 999), identity("ada"));
  assert.equal(cache.get("a", 1000), undefined);
  assert.equal(cache.size, 0);
});

test("a full cache forgets the oldest, and grows no further", () => {
  const cache = createTokenCache(3);
  for (const name of ["a", "b", "c", "a", "d"]) cache.set(name, identity(name), 1000);
  assert.equal(cache.size, 3);
  assert.deepEqual(
    ["a", "b", "c", "d"].map((name) => cache.get(name, 0) !== undefined),
    [true, false, true, true],
  );
});

test("what is kept of a token is its SHA-256", () => {
  assert.equal(digestToken("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
});
