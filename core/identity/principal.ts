/** The principal: the user on whose behalf stored objects are read and written. */

import { cloneJson } from "../lib/canonical-json.ts";
import { invalid, notFound, quoted, ServiceError } from "../lib/errors.ts";
import type { Manifest } from "../manifest/manifest.ts";

// How a request was authorized.

/**
 * The credentials of a request: the token of a user, the console's key, or the development bypass. `nobody` on a public route, where no
 * credentials are checked.
 */
export type Caller = { readonly kind: "nobody" | "user" | "console" | "dev" };

export const NOBODY: Caller = Object.freeze({ kind: "nobody" });

/** On whose behalf a caller acts. The rules that use it stand below. */
export interface Principal {
  /** The user of the token, or null when there is none. */
  readonly userId: string | null;
  /** Whether only objects of `userId` are visible; those of others do not exist for this principal. */
  readonly isolated: boolean;
}

/** The principal of recovery, of the console, and of all callers without isolation. */
export const EVERYTHING: Principal = { userId: null, isolated: false };

/** Whether stored objects belong to the token's user. Without authentication there are no users, and so no isolation. */
export const isIsolated = ({ auth: { mode, isolation } }: Pick<Manifest, "auth">): boolean =>
  mode !== "none" && isolation === "user";

/** What is known of the sender of a request. */
export interface Requester {
  readonly user: User | null;
  readonly caller: Caller;
}

export const seesEverything = ({ kind }: Caller): boolean => kind === "console" || kind === "dev";

/**
 * The principal of a request. The console and the development bypass see everything.
 *
 * @param isolated whether stored objects belong to the token's user
 * @throws ServiceError `unauthorized` when they do and the token names no user
 */
export function principalOf({ user, caller }: Requester, isolated: boolean): Principal {
  if (seesEverything(caller)) return EVERYTHING;
  if (user === null) return isolated ? NO_USER : EVERYTHING;
  const userId = userIdOf(user);
  if (isolated && userId === null)
    throw new ServiceError("unauthorized", "the token names no user (id or sub), and stored objects belong to users", {
      headers: { "www-authenticate": 'Bearer error="invalid_token"' },
    });
  return { userId, isolated };
}

/** With isolation, requests without a user see the objects that have no owner. */
const NO_USER: Principal = Object.freeze({ userId: null, isolated: true });

// The rules of ownership: which objects a caller may see and change. All checks use this file.

/** The owner whose objects an isolated caller sees; empty for a caller without a user. */
export const ownerOf = (principal: Principal): string => principal.userId ?? "";

/** The owner of a conversation when no user is named. */
export const ANONYMOUS = "anonymous";

/** Whether the owner is a particular user. `anonymous` and, with isolation, the empty name stand for all requests without a user. */
export const isSomebody = (owner: string): boolean => owner !== ANONYMOUS && owner !== "";

/** Whether a caller may access an object of `owner`. @param userId the user that the request names, if any */
export function mayAccess(principal: Principal, owner: string, userId: string | undefined): boolean {
  if (principal.isolated && owner !== ownerOf(principal)) return false;
  return userId === undefined || userId === owner;
}

/**
 * The user that a request names, as a filter or an owner. For an isolated caller it is always its own user.
 *
 * @throws ServiceError `invalid_input` when an isolated caller names another user
 */
export function permittedUser(principal: Principal, userId: string | undefined): string | undefined {
  if (!principal.isolated) return userId;
  const owner = ownerOf(principal);
  if (userId !== undefined && userId !== owner) throw invalid("userId must be the user of the token");
  return owner;
}

export const conversationNotFound = (id: string): ServiceError => notFound(`conversation ${quoted(id)} does not exist`);

// The user for whom a request acts.

/**
 * With isolation the user of the token, else the user that the request names, else that of the token.
 *
 * @throws ServiceError `invalid_input` when an isolated caller names another user
 */
export function actingUser(principal: Principal, named: string | undefined): string | undefined {
  return permittedUser(principal, named) ?? principal.userId ?? undefined;
}

/** Like `actingUser`, when a user is required. */
export function requiredUser(principal: Principal, named: string | undefined): string {
  const user = actingUser(principal, named);
  if (user === undefined) throw invalid("userId is required");
  return user;
}

// The user of a token.

/** The user as the authentication provider returned it; its id is `id`, else `sub`. */
export type User = Record<string, unknown>;

/** The id of a user; null when it has none. */
export function userIdOf(user: User | null): string | null {
  const id = user?.id ?? user?.sub;
  return typeof id === "string" && id !== "" ? id : typeof id === "number" ? String(id) : null;
}

/*
 * The token that a user has sent, for calls of other services on the user's behalf. Within this process it accompanies the user object, so
 * that it cannot be used for another user. It is not a property: neither the store nor the log, a trace or a plugin sees it, and a user
 * that was read from the store has none.
 */

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
