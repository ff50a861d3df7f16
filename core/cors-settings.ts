/** From the manifest's CORS settings to the compiled ones of each route. */
import { type Cors, type CorsSettings, compileCors, NO_CORS } from "./http/cors.ts";
import type { Route } from "./http/route.ts";
import type { CorsManifest, ServerManifest } from "./manifest/manifest.ts";
import type { Registry } from "./registry/registry.ts";

export interface ServiceCors {
  readonly default: Cors;
  of(route: Route<never>): Cors;
}

export function compileServiceCors(server: ServerManifest, registry: Registry): ServiceCors {
  const compiled = server.cors === false ? NO_CORS : compileCors(settingsOf(server.cors, registry));
  return { default: compiled, of: () => compiled };
}

function settingsOf(cors: CorsManifest, registry: Registry): CorsSettings {
  const { origin, ...rest } = cors;
  if (origin === "*") return { ...rest, origin };
  if (typeof origin === "string") return { ...rest, origin: [origin] };
  if (Array.isArray(origin)) return { ...rest, origin: origin.includes("*") ? "*" : origin };
  const plugin = registry.get("origin", origin.use);
  if (plugin === undefined) throw new Error(`origin plugin "${origin.use}" does not exist`);
  return { ...rest, origin: (given) => plugin.origin(given) };
}
