/** Who a user is. */

/** The user a provider returned; its id is `id`, else `sub`. */
export type User = Record<string, unknown>;

/** The id of the user that a provider returned. */
export function userIdOf(user: User | null): string | null {
  const id = user?.id ?? user?.sub;
  return typeof id === "string" && id !== "" ? id : typeof id === "number" ? String(id) : null;
}
