/** From a manifest to a listening service, and to its orderly end. */
import type { DestinationStream, Logger } from "pino";
import { validators } from "../../generated/validators.js";
import { compileGuards } from "../auth/authorize.ts";
import { HANDSHAKE_CREDENTIALS } from "../auth/credential-source.ts";
import { accessKeysOf, compileCredentials } from "../auth/credentials.ts";
import type { Dispatch, Listening, SocketOptions } from "../http/exchange.ts";
import { InFlight } from "../http/in-flight.ts";
import { OpenSockets } from "../http/open-sockets.ts";
import { compilePipeline } from "../http/pipeline.ts";
import { createRequestIds } from "../http/request-id.ts";
import { compileSite } from "../http/site.ts";
import { compileSockets } from "../http/socket-pipeline.ts";
import { Uploads } from "../http/uploads.ts";
import { isPublic } from "../manifest/notices.ts";
import { LogOutput } from "../observability/log-output.ts";
import { LogRing } from "../observability/log-ring.ts";
import { LogText } from "../observability/log-text.ts";
import { createLogger } from "../observability/logger.ts";
import type { Meters } from "../observability/metrics/meters.ts";
import { chooseTransport } from "../transport/choose.ts";
import { type Booted, boot } from "./boot.ts";
import { compileServiceCors } from "./cors.ts";
import type { Service } from "./service.ts";

/** Largest head of a request, in bytes. */
const HEAD_LIMIT = 16 * 1024;
/** Milliseconds for the peers of open sockets to answer that the service stops. */
const FAREWELL = 1_000;
const STANDARD_OUTPUT = 1;
/** Lines of the log that are kept until the manifest says how many. */
const BOOT_LINES = 1000;

export interface StartOptions {
  config: string;
  plugins?: readonly string[];
  port?: number;
  host?: string;
  /** The folder of the package.json whose packages `/updates` is about; default: Penstock's own. */
  project?: string;
  env?: Readonly<Record<string, string | undefined>>;
  /** Where the log goes; default: standard output. */
  log?: DestinationStream;
}

export interface Running {
  readonly url: string;
  readonly port: number;
  readonly service: Service;
  readonly dispatch: Dispatch;
  /** The same for handshakes of WebSockets. */
  readonly upgrade: SocketOptions["dispatch"];
  readonly logger: Logger;
  readonly transport: string;
  /** Refuses new work, waits for running work up to `limits.drain`, then cuts it. */
  stop(): Promise<void>;
  /** Cuts everything now. */
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
  const text = new LogText();
  text.hide(accessKeysOf(env));
  const ring = new LogRing(BOOT_LINES);
  const output = new LogOutput(STANDARD_OUTPUT);
  const logger = createLogger("info", { destination: options.log ?? output, text, ring });
  const { config, plugins = [], project } = options;
  const booted = await boot({ config, plugins, project, env, logger, text, ring, store: true });
  if (booted.service === null) {
    await booted.close();
    throw new BootError(booted);
  }
  const { service } = booted;
  const { server, logs } = service.manifest;
  logger.level = logs.level;
  ring.resize(logs.buffer);
  const host = options.host ?? server.host;
  const open = new OpenSockets();
  const inFlight = new InFlight(() => open.tick());
  countRequests(service.meters, inFlight, open);
  countLosses(service.meters, output);
  const { dispatch, upgrade } = compileDispatch(service, { host, logger, inFlight, open, booted, env });
  const close = async () => {
    inFlight.close();
    await booted.close();
  };
  let listening: Listening;
  let transport: string;
  try {
    await booted.begin();
    const chosen = await chooseTransport(server.transport, host, logger);
    transport = chosen.name;
    const { connections, socketMessage, stall } = server.limits;
    listening = await chosen.listen(dispatch, {
      host,
      port: options.port ?? server.port,
      connections,
      headLimit: HEAD_LIMIT,
      stall,
      sockets: { dispatch: upgrade, message: socketMessage },
    });
  } catch (error) {
    await close();
    throw error;
  }
  service.address = `http://${host.includes(":") ? `[${host}]` : host}:${listening.port}`;
  let stopped: Promise<void> | null = null;
  const cut = async () => {
    await listening.close();
    await close();
  };
  return {
    booted,
    url: service.address,
    port: listening.port,
    service,
    dispatch,
    upgrade,
    logger,
    transport,
    stop() {
      stopped ??= (async () => {
        service.stopping = true;
        listening.stop();
        const { drain } = server.limits;
        await Promise.all([inFlight.drain(drain), booted.idle(drain)]);
        // Open sockets are no work that is waited for: they are told last.
        await open.close(FAREWELL);
        await cut();
      })();
      return stopped;
    },
    kill: cut,
  };
}

function countRequests(meters: Meters, inFlight: InFlight, open: OpenSockets): void {
  meters.add({
    name: "http_requests_in_flight",
    help: "Requests that wait for something, streams among them.",
    type: "gauge",
    read: () => inFlight.size,
  });
  meters.add({
    name: "http_streams_open",
    help: "Requests that are being answered with a stream.",
    type: "gauge",
    read: () => inFlight.streams,
  });
  meters.add({
    name: "sockets_open",
    help: "WebSockets that are open.",
    type: "gauge",
    read: () => open.size,
  });
}

function countLosses(meters: Meters, output: LogOutput): void {
  meters.add({
    name: "log_lines_lost_total",
    help: "Lines of the log that could not be written to standard output.",
    type: "counter",
    read: () => output.lost,
  });
}

interface Surroundings {
  /** Where it will listen. */
  host: string;
  logger: Logger;
  inFlight: InFlight;
  open: OpenSockets;
  booted: Booted;
  env: Readonly<Record<string, string | undefined>>;
}

function compileDispatch(
  service: Service,
  { host, logger, inFlight, open, booted, env }: Surroundings,
): { dispatch: Dispatch; upgrade: SocketOptions["dispatch"] } {
  const { server } = service.manifest;
  const cors = compileServiceCors(server, booted.registry, logger);
  const site = compileSite(server, service.access.mode === "none" && !isPublic(host));
  const credentials = compileCredentials(env);
  const doors = compileGuards(service.access, credentials, booted.verifier);
  const socketDoors = compileGuards(service.access, credentials, booted.verifier, HANDSHAKE_CREDENTIALS);
  const shared = {
    service,
    logger,
    inFlight,
    tracer: booted.tracer,
    limits: server.limits,
    logs: logger.isLevelEnabled("debug"),
    clientOf: site.clientOf,
    requestId: createRequestIds(),
    cors: cors.of,
    defaultCors: cors.default,
    meters: service.meters,
    site,
  };
  const sockets = compileSockets(service.sockets, {
    ...shared,
    open,
    authorize: (path) => socketDoors.of(service.access.of(path)),
    authorizeUnknown: socketDoors.unknown,
  });
  const dispatch = compilePipeline(service.routes, {
    ...shared,
    check: (schema) => validators[schema],
    authorize: (route) => doors.of(service.access.of(route)),
    authorizeUnknown: doors.unknown,
    bodyLimit: server.limits.body,
    isProxied: server.trustedProxies.length > 0,
    uploads: new Uploads(server.limits.uploads),
    isSocket: sockets.has,
  });
  return { dispatch, upgrade: sockets.dispatch };
}
