/** Starts the service of a manifest, and stops it in order. */
import { isatty } from "node:tty";
import type { DestinationStream, Logger } from "pino";
import type { Reloaded } from "../../generated/types.ts";
import type { Dispatch, Listening, SocketOptions } from "../http/exchange.ts";
import { InFlight } from "../http/in-flight.ts";
import { OpenSockets } from "../http/open-sockets.ts";
import { bracketed } from "../lib/host-name.ts";
import type { LimitsManifest, ServerManifest } from "../manifest/manifest.ts";
import { joinLine } from "../observability/log-line.ts";
import { LogOutput } from "../observability/log-output.ts";
import { LogRing } from "../observability/log-ring.ts";
import { LogText } from "../observability/log-text.ts";
import { createLogger } from "../observability/logger.ts";
import type { CountRefusal, Meters } from "../observability/metrics/meters.ts";
import { type LogFormat, lineFormat } from "../observability/terminal-line.ts";
import { chooseTransport } from "../transport/choose.ts";
import { type Booted, boot, createReload, type Generation } from "./boot.ts";
import { type CassetteFolders, openCassettes } from "./cassettes.ts";
import { compileDispatch, type Dispatches } from "./dispatch.ts";
import type { Service } from "./service.ts";

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
