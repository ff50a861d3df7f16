/** Every route and socket of a service with its access class, by path. */
import type { RouteState } from "../../generated/types.ts";
import { describeAccess } from "../auth/document.ts";
import type { Service } from "./service.ts";

export function routeStates({
  routes,
  sockets,
  access,
  meters,
}: Pick<Service, "routes" | "sockets" | "access" | "meters">): RouteState[] {
  const rows = [
    ...routes.map(({ method, path, group, operation, summary }) => ({ method, path, group, operation, summary })),
    ...sockets.map(({ path, group, operation, summary }) => ({ method: "WS", path, group, operation, summary })),
  ];
  return rows.sort(byPath).map(({ method, path, group, operation, summary }) => {
    const { statuses } = meters.ofRoute({ method, path, operation });
    const requests = statuses.outcomes.reduce((sum, outcome) => sum + statuses.of(outcome), 0);
    return {
      method,
      path,
      access: describeAccess(access.of({ method, path, group })),
      operation,
      summary,
      custom: group === "custom",
      requests,
      refused: statuses.of("4xx"),
      failed: statuses.of("5xx"),
    };
  });
}

const byPath = (a: { path: string; method: string }, b: { path: string; method: string }) =>
  a.path === b.path ? (a.method < b.method ? -1 : 1) : a.path < b.path ? -1 : 1;
