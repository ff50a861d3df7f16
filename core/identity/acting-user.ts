/** The user for whom a request acts. */
import { invalid } from "../lib/errors.ts";
import { permittedUser } from "./ownership.ts";
import type { Principal } from "./principal.ts";

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
