/** Authorizes requests: checks the credentials that the access class of a route requires, and records the caller in the call. */
import type { Authorize } from "../http/call.ts";
import type { Context } from "../http/route.ts";
import { type Caller, type User, withToken } from "../identity/principal.ts";
import { messageOf, ServiceError } from "../lib/errors.ts";
import { type AccessClass, type AccessRules, accessClass, type RouteAccess } from "./classes.ts";
import {
  CONSOLE_KEY_VARIABLE,
  type CredentialHeaders,
  type CredentialSource,
  type Credentials,
  REQUEST_CREDENTIALS,
} from "./credentials.ts";
import type { Identity, Verifier } from "./provider-port.ts";

// The 401 errors: what is missing or wrong, and how to send it. They never contain a key or a token.

type ProtectedClass = Exclude<AccessClass, "public">;

/** The credentials that a protected route requires. */
interface AccessRequirement {
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
const CONSOLE_CHALLENGE = 'ConsoleKey realm="penstock"';
const CHALLENGES: Record<ProtectedClass, string> = {
  user: BEARER,
  console: CONSOLE_CHALLENGE,
  operator: `${BEARER}, ${CONSOLE_CHALLENGE}`,
};

function missingCredentials(requirement: AccessRequirement): ServiceError {
  return unauthorized(MESSAGES[requirement.access], requirement, CHALLENGES[requirement.access]);
}

function invalidToken(requirement: AccessRequirement): ServiceError {
  const challenge = CHALLENGES[requirement.access].replace(BEARER, `${BEARER}, error="invalid_token"`);
  return unauthorized("the token is not valid or has expired", requirement, challenge);
}

function invalidKey(requirement: AccessRequirement): ServiceError {
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

const USER: Caller = Object.freeze({ kind: "user" });
const CONSOLE: Caller = Object.freeze({ kind: "console" });
const DEVELOPMENT: Caller = Object.freeze({ kind: "dev" });

/** The part of a call that authorization fills in. */
interface AuthorizedCall extends Pick<Context<unknown>, "logger"> {
  user: User | null;
  caller: Caller;
  /** Milliseconds since 1970 at which the credentials expire; null when they do not. */
  expires: number | null;
}

interface Guards {
  /** Null for a route that is public for all values of its parameters: such a request costs nothing. */
  of(route: RouteAccess): Authorize<AuthorizedCall> | null;
  /** For requests that no route answers; null when everything is public. */
  readonly unknown: Authorize<AuthorizedCall> | null;
}

/** The settings for checking credentials. */
interface Checks {
  readonly credentials: Credentials;
  readonly verifier: Verifier | null;
  /** Whether users keep their tokens, because other services are called on their behalf. */
  readonly keepsTokens: boolean;
}

/** @param source reads the credentials of an HTTP request, or of a WebSocket handshake */
export function compileGuards(
  access: AccessRules,
  checks: Checks,
  source: CredentialSource = REQUEST_CREDENTIALS,
): Guards {
  const { development } = checks.credentials;
  const requirements: Record<ProtectedClass, AccessRequirement> = {
    user: { access: "user", source, development },
    console: { access: "console", source, development },
    operator: { access: "operator", source, development },
  };
  const check = (access: ProtectedClass, call: AuthorizedCall, head: CredentialHeaders) =>
    authorize(requirements[access], call, head, checks);
  return {
    of(route) {
      const { exceptions, otherwise } = route;
      if (exceptions.length > 0) {
        return (call, head, values) => {
          const found = accessClass(route, values);
          return found === "public" ? undefined : check(found, call, head);
        };
      }
      return otherwise === "public" ? null : (call, head) => check(otherwise, call, head);
    },
    unknown:
      access.mode === "none"
        ? null
        : (call, head) => {
            const found = access.ofUnknown(source.method(head), head.path);
            return found === "public" ? undefined : check(found, call, head);
          },
  };
}

/** @throws ServiceError `unauthorized` */
function authorize(
  requirement: AccessRequirement,
  call: AuthorizedCall,
  head: CredentialHeaders,
  { credentials, verifier, keepsTokens }: Checks,
): void | Promise<void> {
  const { access, source } = requirement;
  if (source.isDevelopment(head, credentials)) {
    call.caller = DEVELOPMENT;
    return;
  }
  if (access !== "user" && credentials.isConsole(head)) {
    call.caller = CONSOLE;
    return;
  }
  if (access === "console") throw hasSentKey(head) ? invalidKey(requirement) : missingCredentials(requirement);
  const token = source.token(head);
  if (token === null) throw missingCredentials(requirement);
  if (verifier === null) throw invalidToken(requirement);
  const answer = verifier.verify(token, () => source.request(head));
  const kept = keepsTokens ? token : null;
  if (!(answer instanceof Promise)) return acceptIdentity(answer, kept, call, requirement);
  return answer.then(
    (identity) => acceptIdentity(identity, kept, call, requirement),
    (error) => {
      // The provider is unavailable: the token may be valid, so this is not a 401.
      if (error instanceof ServiceError) throw error;
      call.logger.warn({ err: error }, `a token could not be checked: ${messageOf(error)}`);
      throw invalidToken(requirement);
    },
  );
}

const hasSentKey = (head: CredentialHeaders) =>
  head.header("x-console-access-key") !== "" || /(?:^|&)key=/.test(head.query);

/** @param token null unless the user keeps it */
function acceptIdentity(
  identity: Identity | null,
  token: string | null,
  call: AuthorizedCall,
  requirement: AccessRequirement,
): void {
  if (identity === null) throw invalidToken(requirement);
  call.user = token === null ? identity.user : withToken(identity.user, token);
  call.caller = USER;
  call.expires = accessEnd(identity);
}

/**
 * The time until which a stream or socket that this token opened may stay open. A token that is accepted after its expiry, within the
 * clock tolerance, is valid until the tolerance is over; one that had not expired yet is valid until its expiry, without extra time.
 */
function accessEnd({ expires, refusedFrom }: Identity): number | null {
  return expires === null || expires > Date.now() ? expires : refusedFrom;
}
