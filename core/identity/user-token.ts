/**
 * The token that a user has sent, for calls of other services on the user's behalf. Within this process it accompanies the user object, so
 * that it cannot be used for another user. It is not a property: neither the store nor the log, a trace or a plugin sees it, and a user
 * that was read from the store has none.
 */
import { cloneJson } from "../lib/clone-json.ts";
import { type User, userIdOf } from "./user.ts";

const tokens = new WeakMap<User, string>();

/** A copy of the user with the token of this request; a copy because several requests may share one user. */
export function withToken(user: User, token: string): User {
  const own = Object.isFrozen(user) ? Object.freeze({ ...user }) : { ...user };
  tokens.set(own, token);
  return own;
}

/** The token of a user; null when there is none, as after a restart. */
export const tokenOf = (user: User | null): string | null => (user === null ? null : (tokens.get(user) ?? null));

/** A deep copy that keeps the token. */
export function cloneUser(user: User | null): User | null {
  const copy = cloneJson(user);
  handOver(user, copy);
  return copy;
}

/** Passes the token on to a stored user whose work continues, but only if both are the same user. */
export function lendToken(from: User | null, to: User | undefined): void {
  const id = userIdOf(from);
  if (to !== undefined && id !== null && id === userIdOf(to)) handOver(from, to);
}

function handOver(from: User | null, to: User | null): void {
  const token = tokenOf(from);
  if (token !== null && to !== null) tokens.set(to, token);
}
