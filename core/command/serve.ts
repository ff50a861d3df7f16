/** The command `serve`: starts the service, prints its address, and runs until a signal. */
import module from "node:module";
import { ReloadRefused } from "../app/boot.ts";
import { BootError, type Running, start } from "../app/start.ts";
import { counted } from "../lib/counted.ts";
import { messageOf } from "../lib/errors.ts";
import { formatIssue, type Issue, type ServerManifest } from "../manifest/manifest.ts";
import { isPublic } from "../manifest/notices.ts";
import { allocateYoung, boundHeapGrowth } from "../platform/heap.ts";
import { pluginFileOf } from "../registry/blame.ts";
import { shortPath } from "../registry/problem.ts";
import { areRowsLarge } from "../storage/memory-shares.ts";
import { isVolatile } from "../storage/store.ts";
import { printIssues } from "./inspect.ts";
import type { Invocation } from "./invocation.ts";
import { endWith, SAME_SIGNAL_WINDOW_MS } from "./signals.ts";

type Started = Awaited<ReturnType<typeof start>>;

/** Resolves to the exit code once the service has ended. */
export async function serve(invocation: Invocation): Promise<number> {
  // Output that cannot be written (a full disk, a closed terminal) must not end the service.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  allocateYoung();
  let running: Started;
  try {
    running = await start(invocation);
  } catch (error) {
    if (!(error instanceof BootError)) throw error;
    printIssues(error.booted.issues);
    return 1;
  }
  const { store } = running.service;
  if (isVolatile(store)) boundHeapGrowth(() => areRowsLarge(store));
  // Before the address is printed: without a listener a signal would end the process at once.
  const stopped = untilStopped(running);
  tell(running, running.booted.issues);
  // The check of the manifest has warned only about the host in the manifest.
  if (invocation.host !== undefined && isPublic(invocation.host) && running.service.manifest.auth.mode === "none") {
    const { host } = invocation;
    printed(running).warn(`--host ${host}: the service is open to everybody who reaches ${host}: auth.mode is none`);
  }
  running.announce(describe(running));
  // What a start has compiled is kept for the next one, also if this process is killed. Node 20 has no such cache.
  (module as { flushCompileCache?(): void }).flushCompileCache?.();
  return stopped;
}

/** The log at every `logs.level`. */
const printed = ({ logger }: Running) => logger.child({}, { level: "info" });

function tell(running: Running, issues: readonly Issue[]): void {
  const log = printed(running);
  for (const issue of issues) log[issue.severity === "warning" ? "warn" : "error"](formatIssue(issue));
}

function describe(running: Running): string {
  const { url, service, transport } = running;
  const { manifest } = service;
  const serves = [
    counted(service.agents.size, "agents"),
    counted(service.tools.size, "tools"),
    counted(Object.keys(manifest.workflows).length, "workflows"),
  ];
  return `${manifest.name.replace(/\s+/g, " ")} listens on ${url}: ${serves.join(", ")}; store ${storeName(manifest.store)}, auth ${manifest.auth.mode}, transport ${transport}; console ${url}/; ${describeAccess(running)}`;
}

/** Who can use the service, in one line. */
function describeAccess({ service, url }: Running): string {
  const { auth, server } = service.manifest;
  if (auth.mode !== "none") return "open to callers with a token or the console's key, and public routes to everybody";
  const { hostname } = new URL(url);
  const reached = isPublic(hostname) ? `everybody who reaches ${hostname}` : "every program on this machine";
  return `open to ${reached}${describeOrigins(server.cors)} (auth.mode: none)`;
}

/** Which web pages may call the service from a browser, according to CORS. */
function describeOrigins(cors: ServerManifest["cors"]): string {
  if (cors === false) return "";
  const { origin = "*" } = cors;
  if (typeof origin === "object" && !Array.isArray(origin)) return `, and to pages that server.cors.origin lets in`;
  const origins = [origin].flat();
  return origins.includes("*")
    ? ", and to the pages of every site in its browsers"
    : `, and to pages of ${origins.join(", ")}`;
}

/** The kind of store and its file; never the credentials of a database. */
const storeName = (store: string) => (/^(memory|sqlite):/.test(store) ? store : store.split(":", 1)[0]);

function untilStopped(running: Started): Promise<number> {
  const { logger } = running;
  return new Promise((resolve) => {
    let begun = 0;
    const stop = (code: number) => {
      begun = performance.now();
      running.stop().then(
        () => resolve(endWith(code)),
        (error) => {
          logger.error({ err: error }, messageOf(error));
          resolve(endWith(1));
        },
      );
    };
    const onSignal = (signal: NodeJS.Signals) => {
      if (begun === 0) {
        logger.info({ signal }, "stopping");
        stop(0);
      } else if (performance.now() - begun > SAME_SIGNAL_WINDOW_MS) {
        logger.warn({ signal }, "stopping now");
        cutAndExit(running);
      }
    };
    process.on("SIGTERM", onSignal);
    process.on("SIGINT", onSignal);
    // The log shows the outcome. Windows sends this signal when a terminal is closed, and then ends the process.
    process.on("SIGHUP", () => void reloadAndTell(running));
    answerParent(running);
    const { registry } = running.booted;
    // A rejected promise leaves nothing else half done, so logging it is enough, whoever caused it.
    process.on("unhandledRejection", (error) => {
      const { plugin, whose } = blame(error, registry.folders, "a promise");
      logger.error({ err: error, plugin }, `${whose} was rejected and nobody handled it`);
    });
    process.on("uncaughtException", (error) => {
      const { plugin, whose } = blame(error, registry.folders, "a timer or an event");
      if (plugin !== undefined && running.service.manifest.onPluginCrash === "log") {
        logger.error({ err: error, plugin }, `uncaught exception in ${whose}, going on`);
        return;
      }
      // The state of the process is unknown now, so it ends; work in progress may finish first.
      logger.fatal({ err: error, plugin }, `uncaught exception${plugin === undefined ? "" : ` in ${whose}`}, stopping`);
      if (begun === 0) stop(1);
    });
  });
}

/** The message with which the command `dev` asks for a reload. A signal would give no answer, and Windows has none to send. */
export const RELOAD_REQUEST = "penstock: reload";
export interface ReloadAnswer {
  /** Whether only a restart applies the change. */
  readonly needsRestart: boolean;
}

/** Reloads, and prints what is served now or why nothing has changed. Never rejects. */
async function reloadAndTell(running: Started): Promise<ReloadAnswer> {
  try {
    await running.reload();
  } catch (error) {
    const refused = error instanceof ReloadRefused ? error : null;
    tell(running, refused?.issues ?? []);
    return { needsRestart: refused?.needsRestart === true };
  }
  running.announce(describe(running));
  return { needsRestart: false };
}

function answerParent(running: Started): void {
  if (process.send === undefined) return;
  process.on("message", (message) => {
    if (message !== RELOAD_REQUEST) return;
    void reloadAndTell(running).then((answer) => process.send?.(answer));
  });
  // A service that has ended must not stay alive because its parent might write.
  process.channel?.unref();
}

/** @param what threw, as the log line calls it */
function blame(error: unknown, folders: readonly string[], what: string): { plugin?: string; whose: string } {
  const file = pluginFileOf(error, folders);
  if (file === null) return { whose: what };
  const plugin = shortPath(file);
  return { plugin, whose: `${what} of the plugin ${plugin}` };
}

function cutAndExit(running: Running): void {
  endWith(1);
  void running.kill().finally(() => process.exit(1));
}
