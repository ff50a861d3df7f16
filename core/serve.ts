/** Serves a manifest: boots, listens, and stops in order. */

import type { DestinationStream, Logger } from "pino";
import { validators } from "../generated/validators.js";
import { accessOf } from "./auth/access.ts";
import { type Booted, boot } from "./boot.ts";
import { compileServiceCors } from "./cors-settings.ts";
import { messageOf } from "./errors.ts";
import type { Dispatch, Listening } from "./http/exchange.ts";
import { InFlight } from "./http/in-flight.ts";
import { compilePipeline } from "./http/pipeline.ts";
import { createRequestIds } from "./http/request-id.ts";
import { printIssues, printWarning } from "./inspect.ts";
import type { Invocation } from "./invocation.ts";
import { maskText } from "./manifest/environment.ts";
import { isPublic } from "./manifest/notices.ts";
import { createLogger } from "./observability/logger.ts";
import type { Service } from "./service.ts";
import { chooseTransport } from "./transport/choose.ts";

/** Largest head of a request, in bytes. */
const HEAD_LIMIT = 16 * 1024;
/** A group signal arrives twice when npm stands between; a second one within this many milliseconds is the same one. */
const SAME_SIGNAL = 1_000;
/** Milliseconds from the end of the service to that of the process, whatever timers a plugin has left behind. */
const LINGER = 1_000;

export interface StartOptions {
  config: string;
  plugins?: readonly string[];
  port?: number;
  host?: string;
  env?: Readonly<Record<string, string | undefined>>;
  /** Where the log goes; default: standard output. */
  log?: DestinationStream;
}

export interface Running {
  readonly url: string;
  readonly port: number;
  readonly service: Service;
  readonly dispatch: Dispatch;
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
  const secrets: string[] = [];
  const logger = createLogger("info", options.log, (text) => maskText(text, secrets));
  const booted = await boot({ config: options.config, plugins: options.plugins ?? [], env, logger });
  if (booted.service === null) {
    await booted.host.close();
    throw new BootError(booted);
  }
  secrets.push(...booted.loaded.secrets);
  const { service } = booted;
  const { server, logs } = service.manifest;
  logger.level = logs.level;
  const host = options.host ?? server.host;
  const inFlight = new InFlight();
  const dispatch = compileDispatch(service, logger, inFlight, booted);
  const close = async () => {
    inFlight.close();
    await booted.host.close();
  };
  let listening: Listening;
  let transport: string;
  try {
    const chosen = await chooseTransport(server.transport, host, logger);
    transport = chosen.name;
    const { connections } = server.limits;
    listening = await chosen.listen(dispatch, {
      host,
      port: options.port ?? server.port,
      connections,
      headLimit: HEAD_LIMIT,
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
    logger,
    transport,
    stop() {
      stopped ??= (async () => {
        service.stopping = true;
        listening.stop();
        await inFlight.drain(server.limits.drain);
        await cut();
      })();
      return stopped;
    },
    kill: cut,
  };
}

function compileDispatch(service: Service, logger: Logger, inFlight: InFlight, booted: Booted): Dispatch {
  const { server } = service.manifest;
  const cors = compileServiceCors(server, booted.registry, logger);
  const { mode } = service.manifest.auth;
  return compilePipeline(service.routes, {
    service,
    logger,
    inFlight,
    limits: server.limits,
    logs: logger.isLevelEnabled("debug"),
    requestId: createRequestIds(),
    check: (schema) => validators[schema],
    cors: cors.of,
    defaultCors: cors.default,
    authorize: (route) => {
      const access = accessOf(mode as "none", route.group);
      if (access !== "public") throw new Error(`access class ${access} is not served by this version`);
      return null;
    },
    bodyLimit: server.limits.body,
    stopping: () => service.stopping,
  });
}

/** The command `serve`: starts, says where, and stays until a signal. */
export async function serve(invocation: Invocation): Promise<number> {
  let running: Awaited<ReturnType<typeof start>>;
  try {
    running = await start(invocation);
  } catch (error) {
    if (!(error instanceof BootError)) throw error;
    printIssues(error.booted.issues);
    return 1;
  }
  // Before anybody reads that it is up: a signal that nobody listens to would end the process without a stop.
  const stopped = untilStopped(running);
  printIssues(running.booted.issues);
  // The manifest's own host is warned of among its issues.
  if (invocation.host !== undefined && isPublic(invocation.host) && running.service.manifest.auth.mode === "none") {
    const { host } = invocation;
    printWarning(`--host ${host}: the service is open to everybody who reaches ${host}: auth.mode is none`);
  }
  process.stdout.write(`${describe(running)}\n`);
  return stopped;
}

function describe({ url, service, transport }: Running): string {
  const { manifest } = service;
  const count = (number: number, noun: string) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const serves = [
    count(service.agents.size, "agent"),
    count(service.tools.size, "tool"),
    count(Object.keys(manifest.workflows).length, "workflow"),
  ];
  return `${manifest.name} listens on ${url}: ${serves.join(", ")}; store ${storeName(manifest.store)}, auth ${manifest.auth.mode}, transport ${transport}`;
}

/** The kind of store and its file; never the credentials of a database. */
const storeName = (store: string) => (/^postgres/.test(store) ? "postgres" : store);

function untilStopped(running: Running): Promise<number> {
  return new Promise((resolve) => {
    let first = 0;
    const onSignal = (signal: NodeJS.Signals) => {
      const now = performance.now();
      if (first === 0) {
        first = now;
        running.logger.info({ signal }, "stopping");
        running.stop().then(
          () => resolve(endWith(0)),
          (error) => {
            running.logger.error({ err: error }, messageOf(error));
            resolve(endWith(1));
          },
        );
      } else if (now - first > SAME_SIGNAL) {
        running.logger.warn({ signal }, "stopping now");
        cutAndExit(running);
      }
    };
    process.on("SIGTERM", onSignal);
    process.on("SIGINT", onSignal);
    process.on("unhandledRejection", (error) =>
      running.logger.error({ err: error }, "a promise was rejected and nobody looked"),
    );
    process.on("uncaughtException", (error) => {
      running.logger.fatal({ err: error }, "uncaught exception");
      cutAndExit(running);
    });
  });
}

/** The process ends by itself when nothing is left to do, else it is ended. */
function endWith(code: number): number {
  setTimeout(() => process.exit(code), LINGER).unref();
  return code;
}

function cutAndExit(running: Running): void {
  endWith(1);
  void running.kill().finally(() => process.exit(1));
}
