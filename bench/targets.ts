/** Servers to measure: Penstock as its users start it, and the bare server. */
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Reply } from "./capture.ts";
import { AUTH_ENV } from "./credentials.ts";
import { ended, firstMessage, LOAD_CORE, SERVER_CORE, spawnOn } from "./process.ts";
import type { Service } from "./scenarios.ts";

const HERE = dirname(fileURLToPath(import.meta.url));
export const ROOT = dirname(HERE);

export interface Running {
  readonly port: number;
  readonly pid: number;
  /** Milliseconds from the start of the process to the line with its address. */
  readonly bootMillis: number;
  stop(): Promise<void>;
}

interface PenstockOptions {
  /** Folder of the source tree or of the build. */
  root?: string;
  /** The folder of its manifest; default: this one. */
  manifests?: string;
  /** Path relative to `root`: `core/penstock.js`, `dist/penstock.js`. */
  entry?: string;
  transport?: string;
  service?: Service;
  /** The file of the store instead of a fresh one, which would be removed at the end. */
  file?: string;
  /** Options for node itself: `--cpu-prof`. */
  nodeOptions?: readonly string[];
  /** Whether it has a core to itself; default: yes, if that is possible. */
  pinned?: boolean;
  /** Variables for the manifest, in addition to those that its service always has. */
  env?: Readonly<Record<string, string>>;
}

interface Served {
  manifest: string;
  file: boolean;
  /** Whether its models are behind a provider over HTTP, which is started with it unless there is one in BENCH_PROVIDER. */
  provider?: true;
  /** Variables for the manifest, or for the service itself. */
  env?: Readonly<Record<string, string>>;
}

export const SERVICES: Readonly<Record<Service, Served>> = {
  plain: { manifest: "service.yaml", file: false },
  memory: { manifest: "memory.yaml", file: true },
  kept: { manifest: "kept.yaml", file: true },
  "memory-memory": { manifest: "memory.yaml", file: false },
  workflow: { manifest: "workflow.yaml", file: true },
  "workflow-memory": { manifest: "workflow.yaml", file: false },
  traces: { manifest: "traces.yaml", file: false },
  traced: { manifest: "service.yaml", file: false, env: { BENCH_SAMPLE: "1" } },
  "traced-content": { manifest: "service.yaml", file: false, env: { BENCH_SAMPLE: "1", BENCH_CONTENT: "redacted" } },
  auth: { manifest: "auth.yaml", file: false, env: AUTH_ENV },
  upstream: { manifest: "upstream/service.yaml", file: false, provider: true },
  processes: { manifest: "processes.yaml", file: false },
  everything: { manifest: "upstream/everything.yaml", file: true, provider: true, env: AUTH_ENV },
  package: { manifest: "package.yaml", file: false },
  init: { manifest: "init.yaml", file: true, provider: true, env: AUTH_ENV },
};

const LISTENING = /https?:\/\/(?:\[[^\]]+\]|[^\s:/]+):(\d+)/;

/** Starts `node ENTRY serve --config bench/MANIFEST --port 0` and waits for its start line. */
export async function startPenstock(options: PenstockOptions = {}): Promise<Running> {
  const { root = ROOT, entry = "core/penstock.js", transport = "auto", nodeOptions = [] } = options;
  const { service = "plain", manifests = HERE } = options;
  const { manifest, file, provider, env = {} } = SERVICES[service];
  const upstream = provider && options.env?.BENCH_PROVIDER === undefined ? await startProvider() : null;
  const folder = file ? mkdtempSync(join(tmpdir(), "penstock-bench-")) : null;
  const more = {
    ...(folder !== null && { BENCH_STORE: `sqlite:${options.file ?? join(folder, "penstock.db")}` }),
    ...(upstream !== null && { BENCH_PROVIDER: originOf(upstream) }),
  };
  const args = [
    ...nodeOptions,
    entry,
    "serve",
    "--config",
    join(manifests, manifest),
    "--host",
    "127.0.0.1",
    "--port",
    "0",
  ];
  const began = performance.now();
  const child = spawnOn(options.pinned === false ? null : SERVER_CORE, process.execPath, args, {
    cwd: root,
    env: { ...process.env, BENCH_TRANSPORT: transport, ...env, ...options.env, ...more },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  const port = await new Promise<number>((resolve, reject) => {
    const read = (text: string) => {
      output = (output + text).slice(-16_384);
      const found = LISTENING.exec(output);
      if (found) resolve(Number(found[1]));
    };
    child.stdout?.setEncoding("utf8").on("data", read);
    child.stderr?.setEncoding("utf8").on("data", read);
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`the server ended with ${code} before it listened\n${output}`)));
  });
  const bootMillis = performance.now() - began;
  return {
    port,
    pid: child.pid as number,
    bootMillis,
    stop: async () => {
      child.kill("SIGTERM");
      await ended(child, 10_000);
      await upstream?.stop();
      if (folder !== null) rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Starts the provider of the real path (`upstream/provider.ts`), on the core of the load. */
export const startProvider = (): Promise<Running> => startHelper(LOAD_CORE, "upstream/provider.ts");

export const originOf = ({ port }: Running): string => `http://127.0.0.1:${port}`;

/** Starts the bare server with its replies, each by method and path. */
export function startCeiling(replies: readonly Reply[]): Promise<Running> {
  return startHelper(SERVER_CORE, "ceiling.ts", { message: replies });
}

interface Helper {
  args?: readonly string[];
  nodeOptions?: readonly string[];
  /** Sent to it as soon as it runs. */
  message?: readonly Reply[];
}

/** Starts a program of this folder on a core. The program reports the port on which it listens. */
export async function startHelper(core: number, file: string, helper: Helper = {}): Promise<Running> {
  const { args = [], nodeOptions = [], message } = helper;
  const began = performance.now();
  const command = [...nodeOptions, "--import", "tsx", join(HERE, file), ...args];
  const child = spawnOn(core, process.execPath, command, { cwd: ROOT, stdio: ["ignore", "inherit", "pipe", "ipc"] });
  const listening = firstMessage<{ port: number }>(child);
  await once(child, "spawn");
  if (message !== undefined) child.send(message);
  const { port } = await listening;
  return {
    port,
    pid: child.pid as number,
    bootMillis: performance.now() - began,
    stop: async () => {
      child.kill("SIGTERM");
      await ended(child, 5_000);
    },
  };
}
