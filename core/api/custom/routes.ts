/** Custom routes: plugins of kind `route` as rows of the table. */
import type { Service } from "../../app/service.ts";
import type { Validator } from "../../http/decode.ts";
import type { Context, Route, RouteOutput } from "../../http/route.ts";
import type { User } from "../../identity/user.ts";
import { messageOf } from "../../lib/errors.ts";
import { createSchemaCompiler, type SchemaCompiler } from "../../lib/json-schema.ts";
import type { Problem } from "../../lib/problem.ts";
import { promised } from "../../lib/thenable.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import type { RoutePlugin } from "../../plugin/plugin.ts";
import type { Registry } from "../../registry/registry.ts";
import { CustomCall } from "./route-call.ts";
import { requestShape, shadowsRoute } from "./route-conflicts.ts";

const ANYTHING: Validator = () => true;
const WITH_BODY = new Set(["POST", "PUT", "PATCH"]);

/**
 * The rows that the manifest's `routes` name. None may have the method and path shape of another, the path shape of one of
 * `sockets`, or hide one of `taken`, which take precedence.
 */
export function customRoutes(
  manifest: Pick<Manifest, "routes">,
  registry: Registry,
  taken: readonly Route<Service>[],
  sockets: readonly { readonly path: string }[] = [],
): { routes: Route<Service>[]; problems: Problem[] } {
  const compiler = createSchemaCompiler();
  const shapes = new Set(taken.map(requestShape));
  const routes: Route<Service>[] = [];
  const problems: Problem[] = [];
  for (const [index, { use }] of manifest.routes.entries()) {
    const plugin = registry.get("route", use);
    if (plugin === undefined) continue;
    const report = (message: string) => problems.push({ path: ["routes", index, "use"], message });
    try {
      const row = customRoute(use, plugin, compiler);
      const hidden = taken.find((route) => shadowsRoute(row, route));
      if (shapes.has(requestShape(row))) report(`${row.method} ${row.path} is taken by another route`);
      else if (sockets.some(({ path }) => requestShape({ method: row.method, path }) === requestShape(row)))
        report(`${row.path} is taken by a socket`);
      else if (hidden !== undefined)
        report(
          `${row.method} ${row.path} would hide ${hidden.method} ${hidden.path}: choose a path that it does not match`,
        );
      shapes.add(requestShape(row));
      routes.push(row);
    } catch (error) {
      report(`route plugin "${use}": ${messageOf(error)}`);
    }
  }
  return { routes, problems };
}

/** Throws when a schema of the plugin does not compile. */
function customRoute(name: string, plugin: RoutePlugin, compiler: SchemaCompiler): Route<Service> {
  const query = plugin.query === undefined ? ANYTHING : (compiler.compile(plugin.query) as Validator);
  const body = plugin.body === undefined ? ANYTHING : (compiler.compile(plugin.body) as Validator);
  const takesBody = WITH_BODY.has(plugin.method);
  return {
    operation: `custom.${name}`,
    method: plugin.method,
    path: plugin.path,
    group: "custom",
    summary: plugin.summary ?? name,
    output: { json: "CustomResult" } as RouteOutput,
    checks: takesBody ? { query, body } : { query },
    schemas: { query: plugin.query, body: plugin.body, response: plugin.response },
    bodyOptional: plugin.body === undefined,
    cors: plugin.cors,
    readsHeaders: true,
    handle(input, call: Context<Service>) {
      const {
        params,
        query: parsed,
        body: given,
      } = input as unknown as { params: Record<string, string>; query: object; body: unknown };
      const { headers } = call;
      const user = ownUser(call.user);
      return promised(plugin.handle({ params, query: parsed, body: given, user, headers }, new CustomCall(call)));
    },
  };
}

/** A copy of the user for the route, whose changes must not affect the request. Users of cached tokens are frozen instead. */
export const ownUser = (user: User | null): User | null => (Object.isFrozen(user) ? user : { ...user });
