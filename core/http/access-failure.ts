/** How credentials are checked, and the reply when they are missing or wrong: JSON, or a page for people who use a browser. */
import { ServiceError } from "../lib/errors.ts";
import type { Call } from "./call.ts";
import { errorReply } from "./encode.ts";
import type { Exchange } from "./exchange.ts";
import type { PageReply, Route } from "./route.ts";

/**
 * Sets `user` and `caller` of the call, or throws `unauthorized`. May read the head only before its first await.
 *
 * @param values raw values of the path's parameters
 */
export type Authorize<C> = (call: C, exchange: Exchange, values: readonly string[]) => void | Promise<void>;

/** Whether the client is a browser: programs that read JSON do not ask for HTML. */
const wantsPage = (accept: string): boolean => accept.includes("text/html");

/** Fails the call; a browser gets the page of the route, if it has one, in place of a 401. @param accept the header of the request */
export function failAccess<S>(call: Call<S>, error: unknown, page: Route<S>["refusedPage"], accept: string): void {
  const isRefused = error instanceof ServiceError && error.kind === "unauthorized";
  if (page === undefined || !isRefused || !wantsPage(accept)) {
    call.fail(error);
    return;
  }
  call.track();
  page(call).then(
    (shown) => call.reply(401, pageHeaders(shown, error, call.requestId), shown.body),
    (failure) => call.fail(failure),
  );
}

function pageHeaders({ type = "text/html; charset=utf-8", headers = [] }: PageReply, error: unknown, id: string) {
  const said = errorReply(error, id).headers;
  const kept = said.flatMap((name, place) =>
    place % 2 === 0 && name !== "content-type" ? [name, said[place + 1]!] : [],
  );
  return ["content-type", type, "vary", "accept", ...headers, ...kept];
}

/** Fails with `error`, or with 401 if the caller is not authorized: a refused caller must not learn what else is wrong. */
export function failIfAuthorized<S>(call: Call<S>, allowed: void | Promise<void>, error: unknown): void {
  if (allowed instanceof Promise) {
    call.track();
    allowed.then(
      () => call.fail(error),
      (refused) => call.fail(refused),
    );
  } else call.fail(error);
}
