/** Compiles the CORS settings of the manifest and of plugins for each route. */
import type { Logger } from "pino";
import { type Cors, type CorsSettings, compileCors, NO_CORS } from "../http/cors.ts";
import { compilePattern } from "../http/pattern.ts";
import type { Route } from "../http/route.ts";
import { messageOf } from "../lib/errors.ts";
import type { CorsManifest, ServerManifest } from "../manifest/manifest.ts";
import type { OriginPlugin } from "../plugin/plugin.ts";
import type { Registry } from "../registry/registry.ts";

interface ServiceCors {
  readonly default: Cors;
  /** `server.corsRoutes` takes precedence over the settings of a route plugin, and those over `server.cors`. */
  of(route: { readonly method: string; readonly path: string; readonly cors?: Route<never>["cors"] }): Cors;
}

/** @throws Error for invalid CORS settings of a route plugin */
export function compileServiceCors(server: ServerManifest, registry: Registry, logger: Logger): ServiceCors {
  const compile = (settings: Written | false) =>
    settings === false ? NO_CORS : compileCors(resolveSettings(settings, registry, logger));
  const service = compile(server.cors);
  const single = Object.entries(server.corsRoutes)
    .map(([pattern, settings]) => ({ pattern: compilePattern(pattern), cors: compile(settings) }))
    .sort((one, other) => other.pattern.weight - one.pattern.weight);
  return {
    default: service,
    of({ method, path, cors }) {
      const own = single.find(({ pattern }) => pattern.matches(method, path))?.cors;
      return own ?? (cors === undefined ? service : compile(cors as Written | false));
    },
  };
}

/** Settings as written in the manifest, except that code may also give a function for the origin. */
type Written = Omit<CorsManifest, "origin"> & { origin?: CorsManifest["origin"] | OriginPlugin["origin"] };

function resolveSettings({ origin = "*", ...rest }: Written, registry: Registry, logger: Logger): CorsSettings {
  if (origin === "*") return { ...rest, origin };
  if (typeof origin === "string") return { ...rest, origin: [origin] };
  if (Array.isArray(origin)) return { ...rest, origin: origin.includes("*") ? "*" : origin };
  const plugin = typeof origin === "function" ? { origin } : registry.get("origin", origin?.use);
  if (plugin === undefined) throw new Error(`CORS: there is no origin plugin ${JSON.stringify(origin)}`);
  return { ...rest, origin: (given) => ask(plugin, given, logger) };
}

/** The characters that are valid in a header value. */
const VISIBLE = /^[\x21-\x7e]+$/;

/** The plugin runs before there is a reply that could report an error: when it fails, the origin is rejected. */
function ask(plugin: Pick<OriginPlugin, "origin">, origin: string, logger: Logger): string | undefined {
  try {
    const answer: unknown = plugin.origin(origin);
    if (answer === undefined || answer === null) return undefined;
    if (typeof answer === "string" && VISIBLE.test(answer)) return answer;
    logger.warn({ origin }, `CORS: an origin plugin must give an origin or undefined, not ${typeof answer}`);
  } catch (error) {
    logger.warn({ err: error, origin }, `CORS: an origin plugin failed: ${messageOf(error)}`);
  }
  return undefined;
}
