/** On whose behalf something is done, as far as stored objects are concerned. */
import { ServiceError } from "../lib/errors.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { Caller } from "./caller.ts";
import { type User, userIdOf } from "./user.ts";

/** On whose behalf: ownership is checked here and nowhere above. */
export interface Principal {
  /** The user of the token, or null when there is none. */
  readonly userId: string | null;
  /** Sees and writes only what belongs to `userId`; what belongs to another does not exist for it. */
  readonly isolated: boolean;
}

/** Recovery, console and everything without isolation. */
export const EVERYTHING: Principal = { userId: null, isolated: false };

/** Whether stored objects belong to the token's user. Without authentication nobody is known, so that nothing can belong to somebody. */
export const isIsolated = ({ auth: { mode, isolation } }: Pick<Manifest, "auth">): boolean =>
  mode !== "none" && isolation === "user";

/** Whom a request comes from, as far as stored objects are concerned. */
export interface Requester {
  readonly user: User | null;
  readonly caller: Caller;
}

export const seesEverything = ({ kind }: Caller): boolean => kind === "console" || kind === "dev";

/**
 * On whose behalf a request acts. The console and the bypass of development see everything.
 *
 * @param isolated whether stored objects belong to the token's user
 * @throws ServiceError `unauthorized` where they do and the token names none
 */
export function principalOf({ user, caller }: Requester, isolated: boolean): Principal {
  if (seesEverything(caller)) return EVERYTHING;
  if (user === null) return isolated ? OWNERLESS : EVERYTHING;
  const userId = userIdOf(user);
  if (isolated && userId === null) throw nameless();
  return { userId, isolated };
}

/** Those without a user have what belongs to nobody. */
const OWNERLESS: Principal = Object.freeze({ userId: null, isolated: true });

const nameless = () =>
  new ServiceError("unauthorized", "the token names no user (id or sub), and stored objects belong to users", {
    headers: { "www-authenticate": 'Bearer error="invalid_token"' },
  });
