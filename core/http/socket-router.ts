/** Finds the socket of a path: an exact path first, then the longest path that ends in `**`. */
import { segmentsOf, withoutTrailingSlash } from "./pattern.ts";
import { createRouter } from "./router.ts";

export interface SocketMatch<R> {
  readonly route: R;
  /** Raw values of the parameters, in the order of the path. */
  readonly values: readonly string[];
  /** Raw segments that `**` matched, without empty ones; null for a path without `**`. */
  readonly rest: readonly string[] | null;
}

const OPEN_END = /\/\*\*$/;
/** Longer paths match no `**`: the search takes one step per segment. */
const MAX_SEGMENTS = 32;
/** Dots and escaped slashes are refused: a proxy may resolve such a segment to another path. */
const TRAVERSAL_SEGMENT = /^(\.|%2e){1,2}$|%2f/i;
const WS = "WS";

export const hasOpenEnd = (path: string): boolean => OPEN_END.test(path);

/** `/ws/**` and 2 -> `/ws/:rest/:rest`: the form in which the access rules and CORS see a path that `**` matches. */
export const fillOpenEnd = (path: string, segments: number): string =>
  path.replace(OPEN_END, "") + "/:rest".repeat(segments) || "/";

/** @throws Error when two sockets have the same path, apart from the names of parameters */
export function createSocketRouter<R extends { readonly path: string }>(
  routes: readonly R[],
): (path: string) => SocketMatch<R> | null {
  const exact = createRouter(routes.filter(({ path }) => !hasOpenEnd(path)).map((route) => toRow(route, route.path)));
  const opened = routes.filter(({ path }) => hasOpenEnd(path)).map((route) => toRow(route, fillOpenEnd(route.path, 0)));
  const open = createRouter(opened);
  const longest = Math.max(0, ...opened.map(({ path }) => segmentsOf(path).length));

  return (path) => {
    const found = exact.find(path) ?? exact.find(withoutTrailingSlash(path) ?? path);
    if (found !== null) return { route: found.endpoint.methods.get(WS)!.route, values: found.values, rest: null };
    if (opened.length === 0) return null;
    const segments = segmentsOf(path);
    if (segments.length > MAX_SEGMENTS || segments.some((segment) => TRAVERSAL_SEGMENT.test(segment))) return null;
    for (let length = Math.min(longest, segments.length); length >= 0; length--) {
      const match = open.find(`/${segments.slice(0, length).join("/")}`);
      if (match === null) continue;
      return {
        route: match.endpoint.methods.get(WS)!.route,
        values: match.values,
        rest: segments.slice(length).filter(Boolean),
      };
    }
    return null;
  };
}

const toRow = <R>(route: R, path: string) => ({ method: WS, path, route });
