/** Which routes conflict. The router prefers a literal segment to a parameter, from left to right. */

interface Routed {
  readonly method: string;
  readonly path: string;
}

/** Two routes with the same shape match the same requests, whatever their parameters are called. */
export const requestShape = ({ method, path }: Routed): string =>
  `${method} ${segmentsOf(path)
    .map((segment) => (isParameter(segment) ? ":" : segment))
    .join("/")}`;

/**
 * Whether `added` takes paths away from `route`, for every method: `/agents/me` is a path of `/agents/:id` too, and the router
 * looks at the methods of the more specific one alone.
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
