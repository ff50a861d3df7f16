/**
 * Patterns of routes, as the manifest writes them: `/agents/:id`, `GET /agents/*` (anything below `/agents`, at any
 * depth), `/agents/**` (`/agents` itself too). They are matched with the paths of the table, once, at boot.
 */

export interface RoutePattern {
  matches(method: string, path: string): boolean;
  /** Of two patterns that match, the one with the higher number says more about the route. */
  readonly weight: number;
}

const PARTS = /^(?:([A-Z]+) )?(\/.*)$/;

/** @throws Error for text that is no pattern */
export function compilePattern(text: string): RoutePattern {
  const [, method, path] = PARTS.exec(text) ?? [];
  if (path === undefined) throw new Error(`${JSON.stringify(text)} is no pattern such as GET /agents/*`);
  const segments = segmentsOf(path);
  const last = segments.at(-1);
  const open = last === "*" || last === "**";
  if (open) segments.pop();
  const least = segments.length + (last === "*" ? 1 : 0);
  const literals = segments.filter((segment) => !isParameter(segment)).length;
  return {
    weight: literals * 1000 + segments.length * 10 + (open ? 0 : 2) + (method === undefined ? 0 : 1),
    matches(candidate, route) {
      if (method !== undefined && method !== candidate) return false;
      const others = segmentsOf(route);
      if (open ? others.length < least : others.length !== least) return false;
      return segments.every((segment, index) => isParameter(segment) || segment === others[index]);
    },
  };
}

const segmentsOf = (path: string) => path.split("/").filter((segment) => segment !== "");
const isParameter = (segment: string) => segment.startsWith(":") || segment === "*";
