/** Files and connections for tests of storage. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import KeyvSqlite from "@keyv/sqlite";
import { type Logger, pino } from "pino";
import { TYPESCRIPT } from "./command-line.ts";

type Ending = { after(callback: () => unknown): void };

export async function temporaryFolder(t: Ending): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "penstock-store-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** A logger, and the messages that it got: `error: text`. */
export function recordingLogger(): { logger: Logger; lines: string[] } {
  const lines: string[] = [];
  const write = (line: string) => {
    const { level, msg } = JSON.parse(line) as { level: number; msg: string };
    lines.push(`${pino.levels.labels[level]}: ${msg}`);
  };
  return { logger: pino({ level: "info" }, { write }), lines };
}

/** What another program does to a SQLite file: statements, one after the other, on one connection until `close`. */
export async function otherConnection(
  t: Ending,
  file: string,
): Promise<{ run(sql: string): Promise<unknown[]>; close(): Promise<void> }> {
  const adapter = new KeyvSqlite({ uri: file, table: "penstock", busyTimeout: 2_000 });
  await adapter.query("SELECT 1");
  let open = true;
  const close = async () => {
    if (open) await adapter.close();
    open = false;
  };
  t.after(close);
  return { run: (sql) => adapter.query(sql), close };
}

/** Large values of a SQLite file that belong to no row or to several, and rows whose large value is not there. There should be none. */
export async function strayValues(file: string): Promise<unknown[]> {
  const adapter = new KeyvSqlite({ uri: file, table: "penstock", busyTimeout: 2_000 });
  const found = await adapter.query(
    `SELECT id, key, size FROM (SELECT key, size, large_id FROM rows WHERE large_id IS NOT NULL OR size IS NOT NULL)
       FULL JOIN large_values ON id = large_id
       WHERE id IS NULL OR key IS NULL OR size IS NOT octet_length(value)
     UNION ALL SELECT large_id, min(key), count(*) FROM rows WHERE large_id IS NOT NULL GROUP BY large_id HAVING count(*) > 1`,
  );
  await adapter.close();
  return found;
}

/** Another process that runs `code`, a module. `line()` is the next line that it prints, undefined when it has ended. */
export function otherProcess(t: Ending, code: string) {
  const child = spawn(process.execPath, [...TYPESCRIPT, "--input-type=module", "-e", code], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  const lines = linesOf(child.stdout);
  const kill = async (): Promise<void> => {
    child.kill("SIGKILL");
    await exited;
  };
  t.after(kill);
  return { line: async () => (await lines.next()).value, kill };
}

/** Reads on after the end, unlike the iterator of `readline`, which throws then on Node 24. */
export async function* linesOf(stream: AsyncIterable<Buffer>): AsyncGenerator<string, undefined> {
  let rest = "";
  for await (const chunk of stream) {
    const parts = (rest + chunk.toString()).split("\n");
    rest = parts.pop()!;
    yield* parts;
  }
  return undefined;
}

const PAGE_BYTES = 4_096;

/** Overwrites pages of a SQLite file, counted from 1, as a bad disk or another program may: the header of the file stays. */
export async function damagePages(file: string, first: number, count: number): Promise<void> {
  const handle = await open(file, "r+");
  await handle.write(Buffer.alloc(count * PAGE_BYTES, 0xa5), 0, count * PAGE_BYTES, (first - 1) * PAGE_BYTES);
  await handle.close();
}
