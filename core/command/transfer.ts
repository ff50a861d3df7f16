/** The commands `export` and `import`: all rows of a store as lines of JSON, from any engine to any other. */
import { createReadStream, createWriteStream } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { resolve } from "node:path";
import { Readable, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { counted } from "../lib/counted.ts";
import { messageOf } from "../lib/errors.ts";
import { publish } from "../storage/durable-file.ts";
import { requireIdle } from "../storage/idle.ts";
import { type ExportEnd, exportHeader, exportRows, importRows } from "../storage/row-lines.ts";
import { requireAbsent } from "../storage/sqlite-backup.ts";
import type { Store } from "../storage/store.ts";
import type { Invocation } from "./invocation.ts";
import { withNamedStore } from "./named-store.ts";

/** Stands for standard output, or standard input, in place of a file name. */
const STREAM = "-";

/** Exports the store of a service that is stopped: rows that change meanwhile would be inconsistent. */
export const exportStore = (invocation: Invocation): Promise<number> =>
  withNamedStore(invocation, async (named) => {
    const [name] = invocation.rest as [string];
    const store = await named.open();
    try {
      await requireIdle(store);
      const header = exportHeader(store.kind, named.service);
      const end = name === STREAM ? await write(store, process.stdout, header) : await writeFile(store, name, header);
      say(`exported ${describe(end)}`);
      return 0;
    } finally {
      await store.close();
    }
  });

async function write(store: Store, output: Writable, header: ReturnType<typeof exportHeader>): Promise<ExportEnd> {
  let end: ExportEnd | undefined;
  const lines = exportRows(store, header, (last) => {
    end = last;
  });
  await pipeline(Readable.from(lines, { objectMode: false }), output, { end: output !== process.stdout });
  return end!;
}

async function writeFile(store: Store, name: string, header: ReturnType<typeof exportHeader>): Promise<ExportEnd> {
  const target = resolve(name);
  await requireAbsent(name);
  const draft = `${target}.${process.pid}.part`;
  try {
    // The file contains users' messages: only its owner may read it.
    const end = await write(store, createWriteStream(draft, { flags: "wx", mode: 0o600 }), header);
    await publish(draft, () => rename(draft, target));
    return end;
  } finally {
    await rm(draft, { force: true });
  }
}

/** Imports into an empty store, whose service is stopped. */
export const importStore = (invocation: Invocation): Promise<number> =>
  withNamedStore(invocation, async (named) => {
    const [name] = invocation.rest as [string];
    const store = await named.open({ unfinished: true });
    try {
      const end = await importRows(store, name === STREAM ? process.stdin : createReadStream(name));
      say(`imported ${describe(end)}`);
      return 0;
    } catch (error) {
      throw new Error(`${name} cannot be imported: ${messageOf(error)}`, { cause: error });
    } finally {
      await store.close();
    }
  });

/** Prints to standard error, because standard output may be the export. */
const say = (line: string): void => void process.stderr.write(`${line}\n`);

function describe({ rows, kinds, sha256 }: ExportEnd): string {
  const counts = Object.entries(kinds).map(([kind, count]) => counted(count, kind));
  return `${counted(rows, "rows")}${counts.length === 0 ? "" : ` (${counts.join(", ")})`}, sha256 ${sha256}`;
}
