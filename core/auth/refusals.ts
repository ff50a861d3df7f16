/** The 401s: what is missing, and how to send it. They name no key and no token. */
import { ServiceError } from "../lib/errors.ts";
import type { AccessClass } from "./classes.ts";
import { CONSOLE_KEY } from "./credentials.ts";
import type { CredentialSource } from "./entry.ts";

export type Closed = Exclude<AccessClass, "public">;

/** What somebody is let in by, or refused at. */
export interface Guard {
  readonly access: Closed;
  readonly entry: CredentialSource;
  /** Whether the bypass of development may be mentioned. */
  readonly development: boolean;
}

const MISSING: Record<Closed, string> = {
  user: "authentication required",
  console: "console access required",
  operator: "authentication required",
};

const BEARER = 'Bearer realm="penstock"';
const CONSOLE = 'ConsoleKey realm="penstock"';
const CHALLENGES: Record<Closed, string> = { user: BEARER, console: CONSOLE, operator: `${BEARER}, ${CONSOLE}` };

export function missing(door: Guard): ServiceError {
  return unauthorized(MISSING[door.access], door, CHALLENGES[door.access]);
}

export function badToken(door: Guard): ServiceError {
  const challenge = CHALLENGES[door.access].replace(BEARER, `${BEARER}, error="invalid_token"`);
  return unauthorized("the token is not valid, or not any more", door, challenge);
}

export function badKey(door: Guard): ServiceError {
  return unauthorized("the console's key is not the right one", door, CHALLENGES[door.access]);
}

function unauthorized(what: string, { access, entry, development }: Guard, challenge: string): ServiceError {
  const { hints } = entry;
  const token = `send a user's token ${hints.token}`;
  const key = `send the console's key (${CONSOLE_KEY}) ${hints.key}`;
  const how = access === "user" ? token : access === "console" ? key : `${token}, or ${key}`;
  const message = `${what}: ${how}${development ? `; outside production ${hints.development}` : ""}`;
  return new ServiceError("unauthorized", message, { headers: { "www-authenticate": challenge } });
}
