import assert from "node:assert/strict";
import { test } from "node:test";
import { isClosed } from "../../core/outbound/closed.ts";

test("a kept connection that a provider closes at once is free to be asked again; one that it closes later has cost a request", () => {
  const closed = Object.assign(new Error("other side closed"), { code: "UND_ERR_SOCKET" });
  assert.equal(isClosed(closed, performance.now()), true);
  assert.equal(isClosed(closed, performance.now() - 60_000), false);
  assert.equal(isClosed(new Error("refused"), performance.now()), false);
});
