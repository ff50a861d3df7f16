import { invalid } from "../lib/errors.ts";
import { actingUser as boundUser } from "./ownership.ts";
import type { Principal } from "./principal.ts";

/** The user that something is done for. */

/**
 * The user that something is done for: with isolation that of the token, else the one given, else that of the token.
 *
 * @throws ServiceError `invalid_input` when an isolated caller names somebody else
 */
export function actingUser(principal: Principal, given: string | undefined): string | undefined {
  return boundUser(principal, given) ?? principal.userId ?? undefined;
}

/** The same where there must be one. */
export function requiredUser(principal: Principal, given: string | undefined): string {
  const user = actingUser(principal, given);
  if (user === undefined) throw invalid("userId is required");
  return user;
}
