/** Compiles what answers requests, starts the service of a manifest, and stops it in order. */
import { randomBytes } from "node:crypto";
import { isatty } from "node:tty";
import type { DestinationStream, Logger } from "pino";
import type { Reloaded } from "../../generated/types.ts";
import { validators } from "../../generated/validators.js";
import { compileGuards } from "../auth/authorize.ts";
import { compileCredentials, HANDSHAKE_CREDENTIALS } from "../auth/credentials.ts";
import { type Cors, type CorsSettings, compileCors, NO_CORS } from "../http/cors.ts";
import { type Dispatch, type Listening, type SocketOptions, Uploads } from "../http/exchange.ts";
import { InFlight } from "../http/in-flight.ts";
import { OpenSockets } from "../http/open-sockets.ts";
import { compileSite } from "../http/origin.ts";
import { compilePattern } from "../http/pattern.ts";
import { compilePipeline } from "../http/pipeline.ts";
import type { Route } from "../http/route.ts";
import { compileSockets } from "../http/socket-pipeline.ts";
import { messageOf } from "../lib/errors.ts";
import { bracketed } from "../lib/host-name.ts";
import type { CorsManifest, LimitsManifest, ServerManifest } from "../manifest/manifest.ts";
import { isPublic } from "../manifest/notices.ts";
import { joinLine, LogRing } from "../observability/log-line.ts";
import { LogOutput } from "../observability/log-output.ts";
import { LogText } from "../observability/log-text.ts";
import { createLogger } from "../observability/logger.ts";
import type { CountRefusal, Meters } from "../observability/metrics/meters.ts";
import { type LogFormat, lineFormat } from "../observability/terminal-line.ts";
import type { OriginPlugin } from "../plugin/plugin.ts";
import type { Registry } from "../registry/registry.ts";
import { chooseTransport } from "../transport/choose.ts";
import { type Booted, boot, createReload, type Generation } from "./boot.ts";
import { type CassetteFolders, openCassettes } from "./cassettes.ts";
import type { Service } from "./service.ts";

// Compiles the routes and sockets of a service to the two functions that a transport calls.

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

interface Dispatches {
  dispatch: Dispatch;
  /** Called for handshakes of WebSockets. */
  upgrade: SocketOptions["dispatch"];
}

function compileDispatch(
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

/** Largest head of a request. */
const MAX_HEAD_BYTES = 16 * 1024;
/** How long to wait for the peers of open sockets to answer the close frame. */
const SOCKET_CLOSE_TIMEOUT_MS = 1_000;
const STANDARD_OUTPUT = 1;
/** Lines of the log that are kept until the manifest sets the number. */
const BOOT_LOG_LINES = 1000;

interface StartOptions extends CassetteFolders {
  config: string;
  plugins?: readonly string[];
  port?: number;
  host?: string;
  /** The folder of the package.json whose packages `/updates` is about; default: Penstock's own. */
  project?: string;
  env?: Readonly<Record<string, string | undefined>>;
  /** Where to write the log; default: standard output. */
  log?: DestinationStream;
}

export interface Running {
  readonly url: string;
  readonly port: number;
  /** The service of the current manifest. */
  readonly service: Service;
  readonly dispatch: Dispatch;
  /** Called for handshakes of WebSockets. */
  readonly upgrade: SocketOptions["dispatch"];
  readonly logger: Logger;
  readonly transport: string;
  /** Writes a line to the log at every level, with names and addresses of the environment as they are. */
  announce(text: string): void;
  /** Reads the manifest again, and serves it from then on. Rejects when it cannot be served: then everything stays as it was. */
  reload(): Promise<Reloaded>;
  /** Refuses new work, waits for running work up to `limits.drain`, then aborts it. */
  stop(): Promise<void>;
  /** Aborts everything now. */
  kill(): Promise<void>;
}

export class BootError extends Error {
  readonly booted: Booted;
  constructor(booted: Booted) {
    super("the manifest has errors");
    this.booted = booted;
  }
}

/** Boots and listens. Throws `BootError` with every problem of the manifest, or an Error when the port is taken. */
export async function start(options: StartOptions): Promise<Running & { booted: Booted }> {
  const env = options.env ?? process.env;
  const { logger, text, ring, output, destination } = openLog(env, options.log);

  const { config, plugins = [], project } = options;
  const cassettes = await openCassettes(options, logger);
  const bootOptions = { config, plugins, project, env, logger, text, ring, cassettes, store: true };
  const booted = await boot(bootOptions);
  const { service: first, generation, generations, registry, code } = booted;
  if (first === null || generation === null || generations === null) {
    await booted.close();
    throw new BootError(booted);
  }
  const { server } = first.manifest;
  const host = options.host ?? server.host;
  const openSockets = new OpenSockets();
  const inFlight = new InFlight(() => openSockets.tick());
  addLiveMeters(first.meters, inFlight, openSockets, output);

  let url = "";
  const compile = (next: Generation): Serving => {
    const service = next.service!;
    const { verifier, tracer, replies, uses } = next;
    const { level, buffer, format } = service.manifest.logs;
    logger.level = level;
    const dispatches = compileDispatch(
      service,
      { registry, verifier, tracer, replies, uses },
      { host, env, logger, inFlight, openSockets },
    );
    service.address = url;
    service.reload = reload;
    ring.resize(buffer);
    output.format = formatFor(format, env);
    return { generation: next, service, ...dispatches };
  };
  let isStopping = false;
  const reload = sharedRuns(
    createReload({
      options: bootOptions,
      registry,
      code,
      generations,
      current: () => serving.generation,
      swap(next) {
        const before = logger.level;
        try {
          const compiled = compile(next);
          next.adopt();
          serving = compiled;
        } catch (error) {
          logger.level = before;
          throw error;
        }
      },
      isStopping: () => isStopping,
    }),
  );
  /** The only reference to the serving generation: a reload replaces it between two requests. */
  let serving = compile(generation);
  const dispatch: Dispatch = (exchange) => serving.dispatch(exchange);
  const upgrade: SocketOptions["dispatch"] = (handshake) => serving.upgrade(handshake);

  const close = async () => {
    inFlight.close();
    await booted.close();
  };
  let bound: Awaited<ReturnType<typeof listen>>;
  try {
    await booted.begin();
    const limits = () => serving.service.manifest.server.limits;
    const port = options.port ?? server.port;
    bound = await listen(
      server.transport,
      { dispatch, upgrade },
      { host, port, limits, logger, refused: first.meters.limits.count },
    );
  } catch (error) {
    await close();
    throw error;
  }
  const { listening, transport } = bound;
  const { port } = listening;
  first.meters.limits.measure("server.limits.connections", () => listening.connections);
  url = `http://${bracketed(host)}:${port}`;
  serving.service.address = url;

  const kill = async () => {
    isStopping = true;
    await listening.close();
    await close();
  };
  const drainAndClose = async () => {
    isStopping = true;
    serving.service.stopping = true;
    listening.stop();
    const { drain } = serving.service.manifest.server.limits;
    await Promise.all([inFlight.drain(drain), booted.idle(drain)]);
    // Closed last, because open sockets do not end by themselves.
    await openSockets.close(SOCKET_CLOSE_TIMEOUT_MS);
    await kill();
  };
  let stopped: Promise<void> | null = null;
  const stop = () => {
    stopped ??= drainAndClose();
    return stopped;
  };
  const announce = (msg: string) => {
    const head = `{"level":"info","time":"${new Date().toISOString()}"`;
    destination.write(`${joinLine(head, { msg })}\n`);
  };
  const running = { booted, logger, announce, transport, url, port, dispatch, upgrade, reload, stop, kill };
  return {
    ...running,
    get service() {
      return serving.service;
    },
  };
}

/** The generation that serves at the moment. */
interface Serving extends Dispatches {
  readonly generation: Generation;
  readonly service: Service;
}

/** The format of lines on standard output. `NO_COLOR` is a common convention. */
const formatFor = (format: LogFormat, { NO_COLOR = "" }: NonNullable<StartOptions["env"]>) =>
  lineFormat(format, { isTerminal: isatty(STANDARD_OUTPUT), colours: NO_COLOR === "" });

/** Opens the log for the first lines: at level `info` until the manifest sets the level. */
function openLog(env: NonNullable<StartOptions["env"]>, elsewhere: DestinationStream | undefined) {
  const text = new LogText();
  const ring = new LogRing(BOOT_LOG_LINES);
  const output = new LogOutput(STANDARD_OUTPUT);
  output.format = formatFor("auto", env);
  const destination = elsewhere ?? output;
  return { logger: createLogger("info", { destination, text, ring }), text, ring, output, destination };
}

async function listen(
  transport: ServerManifest["transport"],
  { dispatch, upgrade }: Dispatches,
  {
    host,
    port,
    limits,
    logger,
    refused,
  }: { host: string; port: number; limits: () => LimitsManifest; logger: Logger; refused: CountRefusal },
): Promise<{ listening: Listening; transport: string }> {
  const chosen = await chooseTransport(transport, host, logger);
  const listening = await chosen.listen(dispatch, {
    host,
    port,
    get connections() {
      return limits().connections;
    },
    headLimit: MAX_HEAD_BYTES,
    refused,
    get stall() {
      return limits().stall;
    },
    sockets: { dispatch: upgrade, message: limits().socketMessage },
  });
  return { listening, transport: chosen.name };
}

/** Runs work one at a time. All calls during a run share the next run, which sees what they have changed. */
function sharedRuns<T>(work: () => Promise<T>): () => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  let next: Promise<T> | null = null;
  const begin = () => {
    next = null;
    return work();
  };
  return () => {
    if (next === null) {
      next = last.then(begin, begin);
      last = next;
    }
    return next;
  };
}

// The metrics of what is open at the moment, and of lost log lines.

function addLiveMeters(meters: Meters, inFlight: InFlight, openSockets: OpenSockets, output: LogOutput): void {
  const add = (name: string, help: string, read: () => number, type: "gauge" | "counter" = "gauge") =>
    meters.add({ name, help, type, read });
  add("http_requests_in_flight", "Requests that wait for something, streams among them.", () => inFlight.size);
  add("http_streams_open", "Requests that are being answered with a stream.", () => inFlight.streams);
  add("sockets_open", "WebSockets that are open.", () => openSockets.size);
  const lost = "Lines of the log that could not be written to standard output.";
  add("log_lines_lost_total", lost, () => output.lost, "counter");
}
