/** Compiles the routes and sockets of a service to the two functions that a transport calls. */
import { randomBytes } from "node:crypto";
import type { Logger } from "pino";
import { validators } from "../../generated/validators.js";
import { compileGuards } from "../auth/authorize.ts";
import { compileCredentials, HANDSHAKE_CREDENTIALS } from "../auth/credentials.ts";
import { type Cors, type CorsSettings, compileCors, NO_CORS } from "../http/cors.ts";
import { type Dispatch, type SocketOptions, Uploads } from "../http/exchange.ts";
import type { InFlight } from "../http/in-flight.ts";
import type { OpenSockets } from "../http/open-sockets.ts";
import { compileSite } from "../http/origin.ts";
import { compilePattern } from "../http/pattern.ts";
import { compilePipeline } from "../http/pipeline.ts";
import type { Route } from "../http/route.ts";
import { compileSockets } from "../http/socket-pipeline.ts";
import { messageOf } from "../lib/errors.ts";
import type { CorsManifest, LimitsManifest, ServerManifest } from "../manifest/manifest.ts";
import { isPublic } from "../manifest/notices.ts";
import type { OriginPlugin } from "../plugin/plugin.ts";
import type { Registry } from "../registry/registry.ts";
import type { Booted, Generation } from "./boot.ts";
import type { Service } from "./service.ts";

interface ServiceCors {
  readonly default: Cors;
  /** `server.corsRoutes` takes precedence over the settings of a route plugin, and those over `server.cors`. */
  of(route: { readonly method: string; readonly path: string; readonly cors?: Route<never>["cors"] }): Cors;
}

/** @throws Error for invalid CORS settings of a route plugin */
function compileServiceCors(server: ServerManifest, registry: Registry, logger: Logger): ServiceCors {
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

/** The limit of a body: at most that of all uploads together, because a larger body could never be received. */
function bodyLimit({ body, uploads }: LimitsManifest, { bodyClass }: Pick<Route<Service>, "bodyClass">) {
  return Math.min(typeof body === "number" ? body : body[bodyClass ?? "default"], uploads);
}

const bodyLimitName = ({ body }: LimitsManifest, { bodyClass }: Pick<Route<Service>, "bodyClass">) =>
  typeof body === "number" ? "server.limits.body" : (`server.limits.body.${bodyClass ?? "default"}` as const);

interface DispatchOptions {
  /** The address to listen on. */
  host: string;
  env: Readonly<Record<string, string | undefined>>;
  logger: Logger;
  inFlight: InFlight;
  openSockets: OpenSockets;
}

export interface Dispatches {
  dispatch: Dispatch;
  /** Called for handshakes of WebSockets. */
  upgrade: SocketOptions["dispatch"];
}

export function compileDispatch(
  service: Service,
  {
    registry,
    verifier,
    tracer,
    replies,
    uses,
  }: Pick<Generation, "verifier" | "tracer" | "replies" | "uses"> & Pick<Booted, "registry">,
  { host, env, logger, inFlight, openSockets }: DispatchOptions,
): Dispatches {
  const { access, meters, manifest } = service;
  const { limits, trustedProxies } = manifest.server;
  const cors = compileServiceCors(manifest.server, registry, logger);
  const { allowedHosts } = manifest.server;
  const site = compileSite(manifest.server, access.mode === "none" && (!isPublic(host) || allowedHosts.length > 0));
  const credentials = compileCredentials(env);
  const checks = {
    credentials,
    verifier,
    keepsTokens: Object.values(manifest.mcp.clients).some(({ auth }) => auth !== undefined),
  };
  const guards = compileGuards(access, checks);
  const socketGuards = compileGuards(access, checks, HANDSHAKE_CREDENTIALS);
  const uploads = new Uploads(limits.uploads, meters.limits.count);
  meters.limits.measure("server.limits.uploads", () => uploads.bytes);
  const shared = {
    service,
    logger,
    inFlight,
    uses,
    tracer,
    limits,
    logs: logger.isLevelEnabled("debug"),
    clientOf: site.clientOf,
    requestId: createRequestIds(),
    cors: cors.of,
    defaultCors: cors.default,
    meters,
    refused: meters.limits.count,
    site,
    uploads,
  };
  const sockets = compileSockets(service.sockets, {
    ...shared,
    open: openSockets,
    authorize: (path) => socketGuards.of(access.of(path)),
    authorizeUnknown: socketGuards.unknown,
  });
  const dispatch = compilePipeline(service.routes, {
    ...shared,
    check: (schema) => validators[schema],
    authorize: (route) => guards.of(access.of(route)),
    authorizeUnknown: guards.unknown,
    bodyLimit: (route) => bodyLimit(limits, route),
    bodyLimitName: (route) => bodyLimitName(limits, route),
    valuesLimit: bodyLimit(limits, {}),
    isProxied: trustedProxies.length > 0,
    replies,
    isSocket: sockets.has,
  });
  return { dispatch, upgrade: sockets.dispatch };
}

const VALID_ID = /^[A-Za-z0-9_.:-]{1,128}$/;

/**
 * The id that the client gave, when it is valid. New ids are a random prefix and a counter: unique across restarts, and a hundred times
 * cheaper than UUIDs.
 */
function createRequestIds(): (given: string) => string {
  const prefix = `${randomBytes(6).toString("hex")}-`;
  let count = 0;
  return (given) => (given !== "" && VALID_ID.test(given) ? given : prefix + (++count).toString(36));
}
