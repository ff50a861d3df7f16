/** How a request was authorized. */

/**
 * By the token of a user, by the console's key, or by the bypass for development. `nobody` on a public route, where no credentials are
 * checked.
 */
export type Caller = { readonly kind: "nobody" | "user" | "console" | "dev" };

export const NOBODY: Caller = Object.freeze({ kind: "nobody" });
