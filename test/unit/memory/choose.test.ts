/** On whose behalf a request comes, with and without isolation. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { actingUser, principalOf, requiredUser, userIdOf } from "../../../core/memory/choose.ts";
import { EVERYTHING } from "../../../core/memory/memory.ts";

test("the user of a token is its id, else its sub; numbers count, anything else does not", () => {
  assert.equal(userIdOf({ id: "a", sub: "b" }), "a");
  assert.equal(userIdOf({ sub: "b" }), "b");
  assert.equal(userIdOf({ id: 7 }), "7");
  for (const user of [null, {}, { id: "" }, { id: null }, { id: {} }]) assert.equal(userIdOf(user), null);
});

test("without a token and without isolation a request acts for the user that it names, and sees everything", () => {
  const principal = principalOf(null, false);
  assert.equal(principal, EVERYTHING);
  assert.equal(actingUser(principal, "ada"), "ada");
  assert.equal(actingUser(principal, undefined), undefined);
  assert.throws(() => requiredUser(principal, undefined), { kind: "invalid_input", message: "userId is required" });
});

test("with a token and without isolation the token's user is meant unless the request names another", () => {
  const principal = principalOf({ id: "ada" }, false);
  assert.equal(requiredUser(principal, undefined), "ada");
  assert.equal(requiredUser(principal, "bob"), "bob");
});

test("with isolation a request acts for the token's user, and one that names another is refused", () => {
  const principal = principalOf({ sub: "ada" }, true);
  assert.equal(requiredUser(principal, undefined), "ada");
  assert.equal(requiredUser(principal, "ada"), "ada");
  assert.throws(() => requiredUser(principal, "bob"), { kind: "invalid_input", message: /userId/ });
  assert.throws(() => actingUser(principal, "bob"), { kind: "invalid_input" });
});

test("with isolation and without a user nobody can be named", () => {
  const principal = principalOf(null, true);
  assert.throws(() => actingUser(principal, "ada"), { kind: "invalid_input" });
  assert.equal(actingUser(principal, undefined), "");
});
