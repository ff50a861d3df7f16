/** Who a user is. */
import type { User } from "./route.ts";

/** The id of the user that a provider returned. */
export function userIdOf(user: User | null): string | null {
  const id = user?.id ?? user?.sub;
  return typeof id === "string" && id !== "" ? id : typeof id === "number" ? String(id) : null;
}
