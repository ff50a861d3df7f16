/**
 * Finds the route that an unmatched request means, if its path is another spelling of the route's: with extra slashes, dots, escapes or
 * capitals. Such a request gets the access class of that route, so that no spelling reveals more than the plain one.
 */
import { createRouter } from "../http/router.ts";
import { hasOpenEnd } from "../http/socket-router.ts";
import { decodeSegment } from "./match-patterns.ts";

interface Row {
  readonly method: string;
  readonly path: string;
}

interface MatchedRoute<R extends Row> {
  readonly route: R;
  /** Raw values of the parameters, in the order of the path. */
  readonly values: readonly string[];
}

/**
 * `/A//b%2Fc/./` -> `a`, `b`, `c`: the segments in lower case with which patterns are compared. A path with `..` has two readings,
 * resolved and literal, because a proxy in front of this service may have read it either way.
 */
export function readings(path: string): string[][] {
  const segments = splitDecoded(path).map((segment) => segment.toLowerCase());
  const plain = normalizeSegments(segments);
  return segments.includes("..") ? [plain, segments.filter((segment) => segment !== "")] : [plain];
}

const splitDecoded = (path: string): string[] =>
  path.split("/").flatMap((encodeSegment) => decodeSegment(encodeSegment).split("/"));

function normalizeSegments(segments: readonly string[]): string[] {
  const plain: string[] = [];
  for (const segment of segments) {
    if (segment === "..") plain.pop();
    else if (segment !== "" && segment !== ".") plain.push(segment);
  }
  return plain;
}

/** Escapes a segment so that it stays one segment of a path. */
const encodeSegment = (segment: string): string => segment.replace(/[%/]/g, encodeURIComponent);
const lookupSegment = (segment: string): string => encodeSegment(segment.toLowerCase());

/** Returns a function that finds the route of another spelling of its path; null when there is none. */
export function compilePlainPaths<R extends Row>(
  routes: readonly R[],
): (method: string, path: string) => MatchedRoute<R> | null {
  const rows = new Map<string, { method: string; path: string; route: R }>();
  for (const route of routes.filter(({ path }) => !hasOpenEnd(path))) {
    const path = route.path.split("/").map((word) => (word.startsWith(":") ? ":" : lookupSegment(decodeSegment(word))));
    const row = { method: route.method, path: path.join("/"), route };
    // Of two routes that differ only in capitals, the first one stands for both.
    const key = `${row.method} ${row.path}`;
    if (!rows.has(key)) rows.set(key, row);
  }
  const router = createRouter([...rows.values()]);
  const find = (method: string, segments: readonly string[]): MatchedRoute<R> | null => {
    const row = router.find(`/${segments.map(lookupSegment).join("/")}`)?.endpoint.methods.get(method);
    if (row === undefined) return null;
    const words = row.path.slice(1).split("/");
    return { route: row.route, values: segments.filter((_segment, index) => words[index] === ":").map(encodeSegment) };
  };
  // An escaped slash may belong to a value: `/a/b%2Fc/` is read as `/a/b%2Fc` first, and as `/a/b/c` only if that finds no route.
  return (method, path) =>
    find(method, normalizeSegments(path.split("/").map(decodeSegment))) ??
    find(method, normalizeSegments(splitDecoded(path)));
}
