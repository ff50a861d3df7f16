/** A page for people in browsers, in place of the JSON that says that credentials are missing. */
import { ServiceError } from "../lib/errors.ts";
import type { Call } from "./call.ts";
import { errorReply } from "./encode.ts";
import type { PageReply, Route } from "./route.ts";

/** Programs that read JSON do not ask for HTML. */
const wantsPage = (accept: string): boolean => accept.includes("text/html");

/** Fails as ever, but for a browser that was refused by a route that has a page for that. @param accept the header of the request */
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
