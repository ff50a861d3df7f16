/** From the manifest's CORS settings to the compiled ones of each route. */
import type { Logger } from "pino";
import { messageOf } from "./errors.ts";
import { type Cors, type CorsSettings, compileCors, NO_CORS } from "./http/cors.ts";
import type { Route } from "./http/route.ts";
import type { CorsManifest, ServerManifest } from "./manifest/manifest.ts";
import type { OriginPlugin } from "./plugin.ts";
import type { Registry } from "./registry/registry.ts";

export interface ServiceCors {
  readonly default: Cors;
  of(route: Route<never>): Cors;
}

export function compileServiceCors(server: ServerManifest, registry: Registry, logger: Logger): ServiceCors {
  const compiled = server.cors === false ? NO_CORS : compileCors(settingsOf(server.cors, registry, logger));
  return { default: compiled, of: () => compiled };
}

function settingsOf(cors: CorsManifest, registry: Registry, logger: Logger): CorsSettings {
  const { origin, ...rest } = cors;
  if (origin === "*") return { ...rest, origin };
  if (typeof origin === "string") return { ...rest, origin: [origin] };
  if (Array.isArray(origin)) return { ...rest, origin: origin.includes("*") ? "*" : origin };
  const plugin = registry.get("origin", origin.use);
  if (plugin === undefined) throw new Error(`origin plugin "${origin.use}" does not exist`);
  return { ...rest, origin: (given) => ask(plugin, given, logger) };
}

/** What may stand in a header. */
const VISIBLE = /^[\x21-\x7e]+$/;

/** The plugin runs before there is anything to answer with: whatever goes wrong in it is a no. */
function ask(plugin: OriginPlugin, origin: string, logger: Logger): string | undefined {
  try {
    const answer: unknown = plugin.origin(origin);
    if (answer === undefined || answer === null) return undefined;
    if (typeof answer === "string" && VISIBLE.test(answer)) return answer;
    logger.warn({ origin }, `origin plugin "${plugin.name}" must give an origin or undefined, not ${typeof answer}`);
  } catch (error) {
    logger.warn({ err: error, origin }, `origin plugin "${plugin.name}": ${messageOf(error)}`);
  }
  return undefined;
}
