/** The principal: the user on whose behalf stored objects are read and written. */
import { ServiceError } from "../lib/errors.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { Caller } from "./caller.ts";
import { type User, userIdOf } from "./user.ts";

/** On whose behalf a caller acts. The rules that use it are in ownership.ts. */
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
  if (isolated && userId === null) throw tokenWithoutUser();
  return { userId, isolated };
}

/** With isolation, requests without a user see the objects that have no owner. */
const NO_USER: Principal = Object.freeze({ userId: null, isolated: true });

const tokenWithoutUser = () =>
  new ServiceError("unauthorized", "the token names no user (id or sub), and stored objects belong to users", {
    headers: { "www-authenticate": 'Bearer error="invalid_token"' },
  });
