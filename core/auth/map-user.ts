/** Turns the claims of a verified token into a user, by the `mapUser` of the provider in the manifest. */
import type { User } from "../identity/principal.ts";
import { type AuthProviderManifest, hint } from "../manifest/manifest.ts";
import type { Registry } from "../registry/registry.ts";

export type Claims = Readonly<Record<string, unknown>>;
/** Maps claims to a user. A plugin may return anything, even a promise: the caller checks the result. */
export type MapUser = (claims: Claims) => unknown;

/**
 * The `mapUser` of a provider; without one the claims are the user, whose id is `sub`.
 *
 * @throws Error when the named plugin does not exist or has no `mapUser`
 */
export function compileMapUser(mapUser: AuthProviderManifest["mapUser"], registry: Registry): MapUser {
  if (mapUser === undefined) return useClaims;
  const { use, ...fields } = mapUser;
  if (use === undefined || Object.keys(fields).length > 0) return (claims) => pickClaims(mapUser, claims);
  const plugin = registry.get("auth", use);
  if (plugin === undefined) throw new Error(`no auth plugin "${use}"${hint(use, registry.names("auth"))}`);
  if (plugin.mapUser === undefined) throw new Error(`auth plugin "${use}" has no mapUser`);
  return (claims) => plugin.mapUser?.(structuredClone(claims));
}

/** Issuers give `sub` to one user only; any other claim may be somebody's choice, `id` too. */
const useClaims: MapUser = (claims) =>
  claims.sub === undefined || claims.id === undefined ? claims : { ...claims, id: claims.sub };

/** Picks claims as fields of the user; a field whose claim is missing is left out. */
function pickClaims(fields: Readonly<Record<string, string>>, claims: Claims): User {
  const user: User = {};
  for (const field in fields) {
    const value = readClaim(claims, fields[field]!);
    if (value !== undefined) user[field] = value;
  }
  return user;
}

/** Reads a claim: `sub`, `https://example.com/roles`, or `realm_access.roles` for a claim within a claim. */
function readClaim(claims: Claims, name: string): unknown {
  if (Object.hasOwn(claims, name)) return claims[name];
  let value: unknown = claims;
  for (const part of name.split(".")) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, part)) return undefined;
    value = (value as Claims)[part];
  }
  return value;
}

/** Whether mapped users have an id. A plugin's function is assumed to set one. */
export function givesId(mapUser: AuthProviderManifest["mapUser"]): boolean {
  if (mapUser === undefined) return true;
  const fields = Object.keys(mapUser);
  return fields.includes("id") || fields.includes("sub") || (fields.length === 1 && fields[0] === "use");
}
