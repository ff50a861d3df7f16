/** PgBouncer in transaction mode before a PostgreSQL server. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { programMissing } from "./programs.ts";

/** The title of a skipped test says why. */
export const NO_PGBOUNCER = programMissing("pgbouncer");
if (NO_PGBOUNCER !== false) console.error(`\n*** NOT TESTED BEHIND PGBOUNCER: ${NO_PGBOUNCER}\n`);

const answers = (path: string) =>
  new Promise<boolean>((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("close", () => resolve(false));
    socket.unref();
    socket.once("connect", () => socket.destroy());
  });

/**
 * Starts it, with two connections to the server at most.
 * @param settings lines of its configuration
 * @returns the URL of the database through it
 */
export async function startPgBouncer(t: TestContext, url: string, settings = ""): Promise<string> {
  const target = new URL(url);
  const folder = await mkdtemp(join(tmpdir(), "penstock-pgbouncer-"));
  // It makes its socket there, as another user.
  await chmod(folder, 0o777);
  const { hostname, port, searchParams, username, password, pathname } = target;
  const login = `user=${username}${password === "" ? "" : ` password=${password}`}`;
  const config = join(folder, "pgbouncer.ini");
  await writeFile(
    config,
    `[databases]
${pathname.slice(1)} = host=${searchParams.get("host") ?? hostname} port=${port || 5432} ${login}
[pgbouncer]
listen_addr =
listen_port = 5432
unix_socket_dir = ${folder}
auth_type = any
pool_mode = transaction
default_pool_size = 2
${settings}
`,
  );
  // Like PostgreSQL, it refuses to run as root.
  const user = process.getuid?.() === 0 ? ["-u", "nobody"] : [];
  const child: ChildProcess = spawn("pgbouncer", ["-q", ...user, config], { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  child.stderr!.setEncoding("utf8").on("data", (text) => {
    said += text;
  });
  t.after(async () => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill("SIGKILL");
      await once(child, "exit");
    }
    await rm(folder, { recursive: true, force: true });
  });
  while (!(await answers(join(folder, ".s.PGSQL.5432")))) {
    if (child.exitCode !== null) throw new Error(`pgbouncer ended: ${said}`);
    await sleep(10);
  }
  target.port = "";
  target.searchParams.set("host", folder);
  return target.href;
}
