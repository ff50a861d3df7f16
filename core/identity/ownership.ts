/** Who may see and change what: nowhere else is it checked. */
import { invalid, notFound, type ServiceError } from "../lib/errors.ts";
import type { Principal } from "./principal.ts";

/** The owner whose objects an isolated caller sees; those of nobody when it has no user. */
export const ownerOf = (principal: Principal): string => principal.userId ?? "";

/** Whose a conversation is when nobody says so. */
export const ANONYMOUS = "anonymous";

/** Whether the owner is one user: `anonymous` and, with isolation, the empty name are everybody who gave none. */
export const isSomebody = (owner: string): boolean => owner !== ANONYMOUS && owner !== "";

/** A conversation that belongs to somebody else does not exist for this caller. */
export function mayAccess(principal: Principal, owner: string, userId: string | undefined): boolean {
  if (principal.isolated && owner !== ownerOf(principal)) return false;
  return userId === undefined || userId === owner;
}

/**
 * The user that a request names, as a filter or an owner: an isolated caller is bound to its own, and cannot name another.
 *
 * @throws ServiceError `invalid_input` when it does
 */
export function permittedUser(principal: Principal, userId: string | undefined): string | undefined {
  if (!principal.isolated) return userId;
  const owner = ownerOf(principal);
  if (userId !== undefined && userId !== owner) throw invalid("userId must be the user of the token");
  return owner;
}

export const conversationNotFound = (id: string): ServiceError =>
  notFound(`conversation ${JSON.stringify(id.slice(0, 128))} does not exist`);
