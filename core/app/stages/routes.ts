/** Stage: the rows of the API, built in and custom. */
import { customRoutes } from "../../api/custom/routes.ts";
import { customSockets } from "../../api/custom/sockets.ts";
import { ROUTES } from "../../api/routes/index.ts";
import { OPENAI_ROUTES } from "../../api/routes/openai.ts";
import { SOCKETS } from "../../api/sockets/index.ts";
import { RESPONSES_SOCKET } from "../../api/sockets/responses.ts";
import { compilePattern } from "../../http/pattern.ts";
import type { Problem } from "../../lib/problem.ts";
import type { Parts } from "./parts.ts";
import type { Stage } from "./stage.ts";

export const routes: Stage<"manifest" | "registry", "routes" | "sockets" | "paths"> = ({ manifest, registry }) => {
  const builtIn = manifest.server.openai ? ROUTES : ROUTES.filter((row) => !OPENAI_ROUTES.includes(row));
  const ownSockets = manifest.server.openai ? SOCKETS : SOCKETS.filter((row) => row !== RESPONSES_SOCKET);
  const custom = customRoutes(manifest, registry, builtIn, ownSockets);
  const routes = [...builtIn, ...custom.routes];
  const customized = customSockets(manifest, registry, ownSockets, routes);
  const sockets = [...ownSockets, ...customized.sockets];
  const paths = [...routes, ...sockets.map(({ path, group }) => ({ method: "WS", path, group }))];
  const problems = [...custom.problems, ...customized.problems, ...unusedPatterns(manifest.server.corsRoutes, paths)];
  return { parts: { routes, sockets, paths }, problems };
};

/** Patterns of `server.corsRoutes` that no route matches. */
function unusedPatterns(corsRoutes: object, paths: Parts["paths"]): Problem[] {
  const unused = Object.keys(corsRoutes).filter((text) => {
    const pattern = compilePattern(text);
    return !paths.some(({ method, path }) => pattern.matches(method, path));
  });
  const message = "no route of this version matches";
  return unused.map((pattern) => ({ path: ["server", "corsRoutes", pattern], message, severity: "warning" }));
}
