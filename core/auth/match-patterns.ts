/** Compares access patterns with routes at boot: whether a pattern matches all paths of a route, none, or some of them. */
import { fitsLength, type ParsedPattern, segmentsOf } from "../http/pattern.ts";

/** The value that a pattern demands of one path parameter. `parameter` is its position among the parameters of the route. */
export interface Wanted {
  readonly parameter: number;
  readonly value: string;
}

/** Whether a pattern matches every path of a route, none, or only those whose parameters have the listed values. */
export type PatternFit = "always" | "never" | readonly Wanted[];

interface RouteShape {
  readonly method: string;
  readonly path: string;
}

export function fitPattern(pattern: ParsedPattern, route: RouteShape): PatternFit {
  if (pattern.method !== undefined && pattern.method !== route.method) return "never";
  const segments = segmentsOf(route.path).map(decodeSegment);
  if (!fitsLength(pattern, segments.length)) return "never";
  const wanted: Wanted[] = [];
  let parameter = -1;
  for (const [index, segment] of segments.entries()) {
    const isParameter = segment.startsWith(":");
    if (isParameter) parameter++;
    const value = pattern.segments[index] ?? null;
    if (value === null || value === segment) continue;
    if (!isParameter) return "never";
    wanted.push({ parameter, value });
  }
  return wanted.length === 0 ? "always" : wanted;
}

/**
 * Whether the parameter values that a pattern demands spell the path of another route, which the router prefers. The pattern
 * `GET /workflows/executions` means that route and not `/workflows/:id`; a request that reaches `/workflows/:id` by writing
 * `executions` with an escape must not get the class of the other route.
 */
export function belongsToOtherRoute(pattern: ParsedPattern, route: RouteShape, routes: readonly RouteShape[]): boolean {
  const own = segmentsOf(route.path).map(decodeSegment);
  return routes.some((other) => {
    const segments = segmentsOf(other.path).map(decodeSegment);
    if (segments.length !== own.length) return false;
    let matchesWord = false;
    for (const [index, segment] of segments.entries()) {
      const ownSegment = own[index] as string;
      // After the literal word that distinguishes the two routes, a parameter of the other one takes any segment.
      if (segment === ownSegment || (segment.startsWith(":") && (matchesWord || ownSegment.startsWith(":")))) continue;
      if (!ownSegment.startsWith(":") || pattern.segments[index] !== segment) return false;
      matchesWord = true;
    }
    return matchesWord;
  });
}

/** A percent-decoded path segment, as patterns name it. A broken escape is kept unchanged: no pattern can name it. */
export function decodeSegment(raw: string): string {
  if (!raw.includes("%")) return raw;
  try {
    return decodeURIComponent(raw);
  } catch {
    return raw;
  }
}
