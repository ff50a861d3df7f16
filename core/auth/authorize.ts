/** Lets a request in or refuses it, by the class of its route; says on the call as what it was let in. */
import { messageOf, ServiceError } from "../errors.ts";
import type { Authorize } from "../http/pipeline.ts";
import type { Caller, Context, User } from "../http/route.ts";
import { type Access, classOf, type RouteAccess } from "./classes.ts";
import { bearerOf, type Credentials, type Head, tokenRequest } from "./credentials.ts";
import type { Identity, Verifier } from "./provider-port.ts";
import { badKey, badToken, type Closed, missing } from "./refusals.ts";

const USER: Caller = Object.freeze({ kind: "user" });
const CONSOLE: Caller = Object.freeze({ kind: "console" });
const DEVELOPMENT: Caller = Object.freeze({ kind: "dev" });

/** The call as access sees it. */
interface Entrant extends Pick<Context<unknown>, "logger"> {
  user: User | null;
  caller: Caller;
}

export interface Doors {
  /** Null for a route that is public whatever its parameters are: such a request costs nothing. */
  of(route: RouteAccess): Authorize<Entrant> | null;
  /** For requests that no route answers; null where everything is public. */
  readonly unknown: Authorize<Entrant> | null;
}

export function compileDoors(access: Access, credentials: Credentials, verifier: Verifier | null): Doors {
  const enter = (closed: Closed, call: Entrant, head: Head) => letIn(closed, call, head, credentials, verifier);
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
            const found = access.ofUnknown(head.method, head.path);
            return found === "public" ? undefined : enter(found, call, head);
          },
  };
}

/** @throws ServiceError `unauthorized` */
function letIn(
  closed: Closed,
  call: Entrant,
  head: Head,
  credentials: Credentials,
  verifier: Verifier | null,
): void | Promise<void> {
  const { development } = credentials;
  if (credentials.isDevelopment(head)) {
    call.caller = DEVELOPMENT;
    return;
  }
  if (closed !== "user" && credentials.isConsole(head)) {
    call.caller = CONSOLE;
    return;
  }
  if (closed === "console") throw sentKey(head) ? badKey(closed, development) : missing(closed, development);
  const token = bearerOf(head);
  if (token === null) throw missing(closed, development);
  if (verifier === null) throw badToken(closed, development);
  const answer = verifier.verify(token, () => tokenRequest(head));
  if (!(answer instanceof Promise)) return enterAs(answer, closed, call, development);
  return answer.then(
    (identity) => enterAs(identity, closed, call, development),
    (error) => {
      // Where the token cannot be judged now, it may be good.
      if (error instanceof ServiceError) throw error;
      call.logger.warn({ err: error }, `a token could not be checked: ${messageOf(error)}`);
      throw badToken(closed, development);
    },
  );
}

const sentKey = (head: Head) => head.header("x-console-access-key") !== "" || /(?:^|&)key=/.test(head.query);

function enterAs(identity: Identity | null, closed: Closed, call: Entrant, development: boolean): void {
  if (identity === null) throw badToken(closed, development);
  call.user = identity.user;
  call.caller = USER;
}
