/**
 * What a path that no route answers is about. It may be that of a route, written otherwise: with a slash too many, dots, escapes or
 * other capitals. It then has the class of that route, so that no spelling tells more than the plain one.
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
 * `/A//b%2Fc/./` -> `a`, `b`, `c`: segments as patterns are compared with, in lower case. Where `..` is among them, there are two
 * ways to read a path: by the time that it arrives here clients have resolved their own.
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

/** A segment as one piece of a path. */
const encodeSegment = (segment: string): string => segment.replace(/[%/]/g, encodeURIComponent);
const lookupSegment = (segment: string): string => encodeSegment(segment.toLowerCase());

/** Finds the route of which a path is another spelling; null where it is none. */
export function compilePlainPaths<R extends Row>(
  routes: readonly R[],
): (method: string, path: string) => MatchedRoute<R> | null {
  const rows = new Map<string, { method: string; path: string; route: R }>();
  for (const route of routes.filter(({ path }) => !hasOpenEnd(path))) {
    const path = route.path.split("/").map((word) => (word.startsWith(":") ? ":" : lookupSegment(decodeSegment(word))));
    const row = { method: route.method, path: path.join("/"), route };
    // Of two that differ in capitals alone the first stands for both.
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
  // A slash in an escape may belong to a value: `/a/b%2Fc/` is `/a/b%2Fc`, and `/a/b/c` only where that is no route.
  return (method, path) =>
    find(method, normalizeSegments(path.split("/").map(decodeSegment))) ??
    find(method, normalizeSegments(splitDecoded(path)));
}
