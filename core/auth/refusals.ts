/** The 401 errors: what is missing or wrong, and how to send it. They never contain a key or a token. */
import { ServiceError } from "../lib/errors.ts";
import type { AccessClass } from "./classes.ts";
import type { CredentialSource } from "./credential-source.ts";
import { CONSOLE_KEY_VARIABLE } from "./credentials.ts";

export type ProtectedClass = Exclude<AccessClass, "public">;

/** The credentials that a protected route requires. */
export interface AccessRequirement {
  readonly access: ProtectedClass;
  readonly source: CredentialSource;
  /** Whether the message may mention the development bypass. */
  readonly development: boolean;
}

const MESSAGES: Record<ProtectedClass, string> = {
  user: "authentication required",
  console: "console access required",
  operator: "authentication required",
};

const BEARER = 'Bearer realm="penstock"';
const CONSOLE = 'ConsoleKey realm="penstock"';
const CHALLENGES: Record<ProtectedClass, string> = {
  user: BEARER,
  console: CONSOLE,
  operator: `${BEARER}, ${CONSOLE}`,
};

export function missingCredentials(requirement: AccessRequirement): ServiceError {
  return unauthorized(MESSAGES[requirement.access], requirement, CHALLENGES[requirement.access]);
}

export function invalidToken(requirement: AccessRequirement): ServiceError {
  const challenge = CHALLENGES[requirement.access].replace(BEARER, `${BEARER}, error="invalid_token"`);
  return unauthorized("the token is not valid or has expired", requirement, challenge);
}

export function invalidKey(requirement: AccessRequirement): ServiceError {
  return unauthorized("the console's key is wrong", requirement, CHALLENGES[requirement.access]);
}

function unauthorized(
  problem: string,
  { access, source, development }: AccessRequirement,
  challenge: string,
): ServiceError {
  const { hints } = source;
  const token = `send a user's token ${hints.token}`;
  const key = `send the console's key (${CONSOLE_KEY_VARIABLE}) ${hints.key}`;
  const how = access === "user" ? token : access === "console" ? key : `${token}, or ${key}`;
  const message = `${problem}: ${how}${development ? `; outside production ${hints.development}` : ""}`;
  return new ServiceError("unauthorized", message, { headers: { "www-authenticate": challenge } });
}
