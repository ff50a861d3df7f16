/** On whose behalf a request comes, with and without isolation. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  actingUser,
  EVERYTHING,
  NOBODY,
  principalOf,
  type Requester,
  requiredUser,
  type User,
  userIdOf,
} from "../../../core/identity/principal.ts";

const NOBODY_AT_ALL: Requester = { user: null, caller: NOBODY };
const holder = (user: User): Requester => ({ user, caller: { kind: "user" } });

test("the user of a token is its id, else its sub; numbers count, anything else does not", () => {
  assert.equal(userIdOf({ id: "a", sub: "b" }), "a");
  assert.equal(userIdOf({ sub: "b" }), "b");
  assert.equal(userIdOf({ id: 7 }), "7");
  for (const user of [null, {}, { id: "" }, { id: null }, { id: {} }]) assert.equal(userIdOf(user), null);
});

test("without a token and without isolation a request acts for the user that it names, and sees everything", () => {
  const principal = principalOf(NOBODY_AT_ALL, false);
  assert.equal(principal, EVERYTHING);
  assert.equal(actingUser(principal, "ada"), "ada");
  assert.equal(actingUser(principal, undefined), undefined);
  assert.throws(() => requiredUser(principal, undefined), { kind: "invalid_input", message: "userId is required" });
});

test("with a token and without isolation the token's user is meant unless the request names another", () => {
  const principal = principalOf(holder({ id: "ada" }), false);
  assert.equal(requiredUser(principal, undefined), "ada");
  assert.equal(requiredUser(principal, "bob"), "bob");
});

test("with isolation a request acts for the token's user, and one that names another is refused", () => {
  const principal = principalOf(holder({ sub: "ada" }), true);
  assert.equal(requiredUser(principal, undefined), "ada");
  assert.equal(requiredUser(principal, "ada"), "ada");
  assert.throws(() => requiredUser(principal, "bob"), { kind: "invalid_input", message: /userId/ });
  assert.throws(() => actingUser(principal, "bob"), { kind: "invalid_input" });
});

test("with isolation and without a user nobody can be named", () => {
  const principal = principalOf(NOBODY_AT_ALL, true);
  assert.throws(() => actingUser(principal, "ada"), { kind: "invalid_input" });
  assert.equal(actingUser(principal, undefined), "");
});

test("the console and the bypass of development see everything, isolated or not, and act for the user that they name", () => {
  for (const kind of ["console", "dev"] as const) {
    for (const isolated of [true, false]) {
      const principal = principalOf({ user: null, caller: { kind } }, isolated);
      assert.equal(principal, EVERYTHING);
      assert.equal(actingUser(principal, "ada"), "ada");
    }
  }
});

test("with isolation a token that names no user has nothing: it is not let in as nobody", () => {
  for (const user of [{}, { id: "" }, { email: "ada@example.com" }]) {
    assert.throws(() => principalOf(holder(user), true), { kind: "unauthorized", message: /names no user/ });
    assert.equal(principalOf(holder(user), false).userId, null);
  }
});
