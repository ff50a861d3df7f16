/** Custom routes: plugins of kind `route` as rows of the table (contract, "Extension: custom routes and CORS"). */
import type { Check } from "../http/decode.ts";
import type { Context, Output, Route } from "../http/route.ts";
import type { SchemaCompiler } from "../json-schema.ts";
import type { RoutePlugin } from "../plugin.ts";
import type { Service } from "../service.ts";

const ANYTHING: Check = () => true;
const WITH_BODY = new Set(["POST", "PUT", "PATCH"]);

/** Throws when a schema of the plugin does not compile. */
export function customRoute(name: string, plugin: RoutePlugin, compiler: SchemaCompiler): Route<Service> {
  const query = plugin.query === undefined ? ANYTHING : (compiler.compile(plugin.query) as Check);
  const body = plugin.body === undefined ? ANYTHING : (compiler.compile(plugin.body) as Check);
  const takesBody = WITH_BODY.has(plugin.method);
  return {
    operation: `custom.${name}`,
    method: plugin.method,
    path: plugin.path,
    group: "custom",
    summary: plugin.summary ?? name,
    output: { json: "CustomResult" } as Output,
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
      const { user, headers, signal, logger, requestId } = call;
      return plugin.handle({ params, query: parsed, body: given, user, headers }, { signal, logger, requestId });
    },
  };
}
