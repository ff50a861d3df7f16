/** Patterns against routes, at boot: what a pattern says of a route, before there is a request. */
import { fitsLength, type ParsedPattern, segmentsOf } from "../http/pattern.ts";

/** A parameter of a route, by its position among them, and the value that a pattern wants it to have. */
export interface Wanted {
  readonly parameter: number;
  readonly value: string;
}

/** Whether a pattern matches every path of a route, none, or those whose parameters have the wanted values. */
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
 * Whether what a pattern wants of a route's parameters is the path of another route, which is found first: written with
 * an escape it would reach this route, and must not have the class of the other. The pattern `GET /workflows/executions`
 * is not about `/workflows/:id`.
 */
export function belongsToOtherRoute(pattern: ParsedPattern, route: RouteShape, routes: readonly RouteShape[]): boolean {
  const own = segmentsOf(route.path).map(decodeSegment);
  return routes.some((other) => {
    const segments = segmentsOf(other.path).map(decodeSegment);
    if (segments.length !== own.length) return false;
    let matchesWord = false;
    for (const [index, segment] of segments.entries()) {
      const ownSegment = own[index] as string;
      // Behind the word that decides, the other one takes whatever stands there.
      if (segment === ownSegment || (segment.startsWith(":") && (matchesWord || ownSegment.startsWith(":")))) continue;
      if (!ownSegment.startsWith(":") || pattern.segments[index] !== segment) return false;
      matchesWord = true;
    }
    return matchesWord;
  });
}

/** A segment as patterns name it. What cannot be decoded is none that they can name. */
export function decodeSegment(raw: string): string {
  if (!raw.includes("%")) return raw;
  try {
    return decodeURIComponent(raw);
  } catch {
    return raw;
  }
}
