/** How a request was authorized. */

/**
 * With the token of a user, with the console's key, or by the development bypass. `nobody` on a public route, which looks at no
 * credentials.
 */
export type Caller = { readonly kind: "nobody" | "user" | "console" | "dev" };

export const NOBODY: Caller = Object.freeze({ kind: "nobody" });
