/** The 401s: what is missing, and how to send it. They name no key and no token. */
import { ServiceError } from "../errors.ts";
import type { AccessClass } from "./classes.ts";
import { CONSOLE_KEY } from "./credentials.ts";

export type Closed = Exclude<AccessClass, "public">;

const SEND_TOKEN = "send a user's token in the header Authorization: Bearer TOKEN";
const SEND_KEY = `send the console's key (${CONSOLE_KEY}) in the header x-console-access-key, or as ?key=KEY`;
const SEND_DEVELOPMENT = "; outside production the header x-service-dev: true is enough";

const HOW: Record<Closed, string> = {
  user: SEND_TOKEN,
  console: SEND_KEY,
  operator: `${SEND_TOKEN}, or ${SEND_KEY}`,
};

const MISSING: Record<Closed, string> = {
  user: "authentication required",
  console: "console access required",
  operator: "authentication required",
};

const BEARER = 'Bearer realm="penstock"';
const CONSOLE = 'ConsoleKey realm="penstock"';
const CHALLENGES: Record<Closed, string> = { user: BEARER, console: CONSOLE, operator: `${BEARER}, ${CONSOLE}` };

/** @param development whether the bypass of development may be mentioned */
export function missing(access: Closed, development: boolean): ServiceError {
  return refused(MISSING[access], access, development, CHALLENGES[access]);
}

export function badToken(access: Closed, development: boolean): ServiceError {
  const challenge = CHALLENGES[access].replace(BEARER, `${BEARER}, error="invalid_token"`);
  return refused("the token is not valid, or not any more", access, development, challenge);
}

export function badKey(access: Closed, development: boolean): ServiceError {
  return refused("the console's key is not the right one", access, development, CHALLENGES[access]);
}

function refused(what: string, access: Closed, development: boolean, challenge: string): ServiceError {
  const message = `${what}: ${HOW[access]}${development ? SEND_DEVELOPMENT : ""}`;
  return new ServiceError("unauthorized", message, { headers: { "www-authenticate": challenge } });
}
