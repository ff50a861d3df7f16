/**
 * Patterns of routes in the manifest: `/agents/:id`, `GET /agents/*` (everything below `/agents`, at any depth), `/agents/**` (`/agents`
 * itself too).
 */
export interface ParsedPattern {
  readonly text: string;
  /** Undefined when the pattern matches any method. */
  readonly method: string | undefined;
  /** The segments before the open end (`*` or `**`). A parameter is null. */
  readonly segments: readonly (string | null)[];
  /** How many segments the open end must match at least: 1 for `*`, 0 for `**`. */
  readonly minRest: 0 | 1;
  readonly hasOpenEnd: boolean;
}

interface RoutePattern {
  matches(method: string, path: string): boolean;
  /** Of two patterns that match, the one with the higher weight is more specific. */
  readonly weight: number;
}

const METHOD_AND_PATH = /^(?:([A-Z]+) )?(\/.*)$/;

/** @throws Error when the text is not a pattern */
export function parsePattern(text: string): ParsedPattern {
  const [, method, path] = METHOD_AND_PATH.exec(text) ?? [];
  if (path === undefined) throw new Error(`${JSON.stringify(text)} is not a pattern such as GET /agents/*`);
  const words = path.split("/").filter((segment) => segment !== "");
  const last = words.at(-1);
  const hasOpenEnd = last === "*" || last === "**";
  if (hasOpenEnd) words.pop();
  const segments = words.map((word) => (word.startsWith(":") || word === "*" ? null : word));
  return { text, method, segments, minRest: last === "*" ? 1 : 0, hasOpenEnd };
}

/** @throws Error when the text is not a pattern */
export function compilePattern(text: string): RoutePattern {
  const pattern = parsePattern(text);
  const { method, segments, hasOpenEnd } = pattern;
  const literals = segments.filter((segment) => segment !== null).length;
  return {
    weight: literals * 1000 + segments.length * 10 + (hasOpenEnd ? 0 : 2) + (method === undefined ? 0 : 1),
    matches: (candidate, route) => matchesSegments(pattern, candidate, segmentsOf(route)),
  };
}

/** Whether the pattern can match paths of `length` segments. */
export function fitsLength({ segments, minRest, hasOpenEnd }: ParsedPattern, length: number): boolean {
  return hasOpenEnd ? length >= segments.length + minRest : length === segments.length;
}

export function matchesSegments(pattern: ParsedPattern, method: string, segments: readonly string[]): boolean {
  if (pattern.method !== undefined && pattern.method !== method) return false;
  if (!fitsLength(pattern, segments.length)) return false;
  // A parameter is never empty.
  return pattern.segments.every(
    (segment, index) => segments[index] === segment || (segment === null && segments[index] !== ""),
  );
}

/** Splits a path. `/` has no segments; a superfluous slash gives an empty segment. */
export const segmentsOf = (path: string): string[] => (path === "/" ? [] : path.slice(1).split("/"));

/** The path without a slash at its end; null for a path that has none, or more than one, and for `/`. */
export const withoutTrailingSlash = (path: string): string | null => /^(.*[^/])\/$/.exec(path)?.[1] ?? null;

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "WS"];

/** Why a pattern is refused: it could match nothing, or not what it seems to. Null when it is fine. */
export function patternProblem(text: unknown): string | null {
  const [, method, path] = typeof text === "string" ? (METHOD_AND_PATH.exec(text) ?? []) : [];
  if (path === undefined) return "must be a path with an optional method before it, such as GET /hello or /reports/*";
  if (method === "HEAD") return "HEAD goes with GET: write GET";
  if (method === "OPTIONS") return "OPTIONS is answered before access is looked at";
  if (method !== undefined && !METHODS.includes(method)) return `${method} is not one of ${METHODS.join(", ")}`;
  if (path === "/") return null;
  const words = path.slice(1).split("/");
  if (words.includes("")) return "an empty segment matches no path: remove the extra slash";
  if (words.slice(0, -1).includes("**")) return "** is allowed at the end only";
  if (words.some((word) => word.includes("*") && word !== "*" && word !== "**"))
    return "* stands for a whole segment: /reports/* and not /reports*";
  if (words.some((word) => word === ":" || word === "." || word === ".."))
    return "has an empty parameter name, or a segment . or ..";
  if (/[%?#]/.test(path)) return "is compared with the decoded path, which has no % escapes, ? or #";
  return null;
}
