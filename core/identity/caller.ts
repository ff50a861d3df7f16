/** As what a request was let in. */

/**
 * As what a request was let in: with the token of a user, with the console's key, by the bypass of development; nobody
 * on a public route, which looks at no credentials.
 */
export type Caller = { readonly kind: "nobody" | "user" | "console" | "dev" };

export const NOBODY: Caller = Object.freeze({ kind: "nobody" });
