/** The user of a token. */

/** The user as the authentication provider returned it; its id is `id`, else `sub`. */
export type User = Record<string, unknown>;

/** The id of a user; null when it has none. */
export function userIdOf(user: User | null): string | null {
  const id = user?.id ?? user?.sub;
  return typeof id === "string" && id !== "" ? id : typeof id === "number" ? String(id) : null;
}
