/** Lets a request in or refuses it, by the class of its route; says on the call as what it was let in. */

import type { Authorize } from "../http/pipeline.ts";
import type { Context } from "../http/route.ts";
import type { Caller } from "../identity/caller.ts";
import type { User } from "../identity/user.ts";
import { messageOf, ServiceError } from "../lib/errors.ts";
import { type AccessRules, classOf, type RouteAccess } from "./classes.ts";
import type { CredentialHeaders, Credentials } from "./credentials.ts";
import { type CredentialSource, REQUEST } from "./entry.ts";
import type { Identity, Verifier } from "./provider-port.ts";
import { badKey, badToken, type Closed, type Guard, missing } from "./refusals.ts";

const USER: Caller = Object.freeze({ kind: "user" });
const CONSOLE: Caller = Object.freeze({ kind: "console" });
const DEVELOPMENT: Caller = Object.freeze({ kind: "dev" });

/** The call as access sees it. */
interface Entrant extends Pick<Context<unknown>, "logger"> {
  user: User | null;
  caller: Caller;
  /** Milliseconds since 1970 at which what was let in ends; null: it does not. */
  expires: number | null;
}

interface Guards {
  /** Null for a route that is public whatever its parameters are: such a request costs nothing. */
  of(route: RouteAccess): Authorize<Entrant> | null;
  /** For requests that no route answers; null where everything is public. */
  readonly unknown: Authorize<Entrant> | null;
}

/** @param entry where credentials are looked for: in those of a request, or of a handshake */
export function compileGuards(
  access: AccessRules,
  credentials: Credentials,
  verifier: Verifier | null,
  entry: CredentialSource = REQUEST,
): Guards {
  const { development } = credentials;
  const doors: Record<Closed, Guard> = {
    user: { access: "user", entry, development },
    console: { access: "console", entry, development },
    operator: { access: "operator", entry, development },
  };
  const enter = (closed: Closed, call: Entrant, head: CredentialHeaders) =>
    letIn(doors[closed], call, head, credentials, verifier);
  return {
    of(route) {
      const { exceptions, otherwise } = route;
      if (exceptions.length > 0) {
        return (call, head, values) => {
          const found = classOf(route, values);
          return found === "public" ? undefined : enter(found, call, head);
        };
      }
      return otherwise === "public" ? null : (call, head) => enter(otherwise, call, head);
    },
    unknown:
      access.mode === "none"
        ? null
        : (call, head) => {
            const found = access.ofUnknown(entry.method(head), head.path);
            return found === "public" ? undefined : enter(found, call, head);
          },
  };
}

/** @throws ServiceError `unauthorized` */
function letIn(
  door: Guard,
  call: Entrant,
  head: CredentialHeaders,
  credentials: Credentials,
  verifier: Verifier | null,
): void | Promise<void> {
  const { access, entry } = door;
  if (entry.isDevelopment(head, credentials)) {
    call.caller = DEVELOPMENT;
    return;
  }
  if (access !== "user" && credentials.isConsole(head)) {
    call.caller = CONSOLE;
    return;
  }
  if (access === "console") throw sentKey(head) ? badKey(door) : missing(door);
  const token = entry.token(head);
  if (token === null) throw missing(door);
  if (verifier === null) throw badToken(door);
  const answer = verifier.verify(token, () => entry.request(head));
  if (!(answer instanceof Promise)) return enterAs(answer, call, door);
  return answer.then(
    (identity) => enterAs(identity, call, door),
    (error) => {
      // Where the token cannot be judged now, it may be good.
      if (error instanceof ServiceError) throw error;
      call.logger.warn({ err: error }, `a token could not be checked: ${messageOf(error)}`);
      throw badToken(door);
    },
  );
}

const sentKey = (head: CredentialHeaders) =>
  head.header("x-console-access-key") !== "" || /(?:^|&)key=/.test(head.query);

function enterAs(identity: Identity | null, call: Entrant, door: Guard): void {
  if (identity === null) throw badToken(door);
  call.user = identity.user;
  call.caller = USER;
  call.expires = endOf(identity);
}

/** The tolerance for clocks lets a token in; it does not prolong what one opened that had not ended yet. */
function endOf({ expires, refused }: Identity): number | null {
  return expires === null || expires > Date.now() ? expires : refused;
}
