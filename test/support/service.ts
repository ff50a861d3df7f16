/** A real Penstock in this process, on a free port of the loopback, from a manifest given as an object or as YAML text. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Booted } from "../../core/app/boot.ts";
import { type Running, start } from "../../core/app/start.ts";
import { EXAMPLES } from "./plugin-folder.ts";

export interface TestService extends Running {
  readonly booted: Booted;
  /** Every line of the log, parsed. */
  readonly log: Record<string, unknown>[];
  get(path: string, headers?: Record<string, string>): Promise<Response>;
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<Response>;
}

export interface TestOptions {
  /** Folders beside that of the examples. */
  plugins?: string[];
  env?: Record<string, string | undefined>;
  /** Default: a folder without packages. */
  project?: string;
  /** Folders of cassettes. */
  record?: string;
  replay?: string;
}

/** Starts a service and stops it when the test ends, or the file (`{ after }` of node:test). `server.port` is 0 and the log level debug unless the manifest says otherwise. */
export async function startService(
  test: { after(end: () => Promise<void>): void },
  manifest: object | string,
  options: TestOptions = {},
): Promise<TestService> {
  const folder = await mkdtemp(join(tmpdir(), "penstock-"));
  const config = join(folder, "service.yaml");
  await writeFile(
    config,
    typeof manifest === "string" ? manifest : JSON.stringify({ logs: { level: "debug" }, ...manifest }),
  );
  if (options.project === undefined) await writeFile(join(folder, "package.json"), "{}");
  const log: Record<string, unknown>[] = [];
  const running = await start({
    config,
    port: 0,
    plugins: [EXAMPLES, ...(options.plugins ?? [])],
    project: options.project ?? folder,
    env: options.env ?? process.env,
    record: options.record,
    replay: options.replay,
    log: { write: (line: string) => void log.push(JSON.parse(line)) },
  });
  test.after(async () => {
    await running.kill();
    await rm(folder, { recursive: true, force: true });
  });
  return {
    ...running,
    log,
    get: (path, headers = {}) => fetch(running.url + path, { headers }),
    post: (path, body, headers = {}) =>
      fetch(running.url + path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: typeof body === "string" ? body : JSON.stringify(body),
      }),
  };
}

export interface SentEvent {
  id: string;
  data: string;
}

/** The events of a whole SSE body, comments left out. */
export function parseEvents(text: string): SentEvent[] {
  return text
    .split("\n\n")
    .filter((block) => block.includes("data: "))
    .map((block) => {
      const field = (name: string) =>
        block
          .split("\n")
          .find((line) => line.startsWith(`${name}: `))
          ?.slice(name.length + 2) ?? "";
      return { id: field("id"), data: field("data") };
    });
}

/** A manifest with one agent on the scripted provider. */
export function manifestWith(agent: object = {}, rest: object = {}): Record<string, unknown> {
  return {
    name: "Test",
    version: "1.0.0",
    store: "memory:",
    providers: { demo: { use: "scripted" } },
    agents: {
      assistant: {
        name: "Assistant",
        description: "Helps",
        instructions: "Help.",
        model: "demo/echo",
        memory: false,
        ...agent,
      },
    },
    ...rest,
  };
}
