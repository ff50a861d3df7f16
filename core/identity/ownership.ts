/** The rules of ownership: which objects a caller may see and change. All checks use this file. */
import { invalid, notFound, quoted, type ServiceError } from "../lib/errors.ts";
import type { Principal } from "./principal.ts";

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
