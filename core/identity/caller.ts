/** How a request was authorized. */

/**
 * The credentials of a request: the token of a user, the console's key, or the development bypass. `nobody` on a public route, where no
 * credentials are checked.
 */
export type Caller = { readonly kind: "nobody" | "user" | "console" | "dev" };

export const NOBODY: Caller = Object.freeze({ kind: "nobody" });
