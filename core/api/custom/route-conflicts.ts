/** Finds conflicting routes. The router prefers a literal segment to a parameter, from left to right. */

interface Routed {
  readonly method: string;
  readonly path: string;
}

/** Two routes with the same shape match the same requests, whatever the names of their parameters. */
export const requestShape = ({ method, path }: Routed): string =>
  `${method} ${segmentsOf(path)
    .map((segment) => (isParameter(segment) ? ":" : segment))
    .join("/")}`;

/**
 * Whether `added` hides paths of `route`, for every method: `/agents/me` is also a path of `/agents/:id`, and the router
 * considers only the methods of the more specific route.
 */
export function shadowsRoute(added: Routed, route: Routed): boolean {
  const wanted = segmentsOf(added.path);
  const others = segmentsOf(route.path);
  if (wanted.length !== others.length) return false;
  const overlap = wanted.every((segment, index) => {
    const other = others[index]!;
    return segment === other || isParameter(segment) || isParameter(other);
  });
  if (!overlap) return false;
  const first = wanted.findIndex((segment, index) => isParameter(segment) !== isParameter(others[index]!));
  // A parameter is never empty.
  return (
    first !== -1 &&
    !isParameter(wanted[first]!) &&
    !others.some((other, index) => isParameter(other) && wanted[index] === "")
  );
}

const segmentsOf = (path: string): string[] => path.slice(1).split("/");
const isParameter = (segment: string): boolean => segment.startsWith(":");
