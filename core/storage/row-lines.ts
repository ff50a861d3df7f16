/**
 * The format of an export: lines of JSON. The first says what it is, each further one is a row as `[key, value]`, in the order of the
 * keys, and the last one tells whether all of them are there and unchanged. The value of a counter is a number.
 */
import { createHash, type Hash } from "node:crypto";
import { counted } from "../lib/counted.ts";
import { CommitConflict, messageOf } from "../lib/errors.ts";
import { clearAllBut, everyRow, isEmpty, signsOfLife } from "./all-keys.ts";
import { PROCESSES } from "./keys.ts";
import { LAYOUT_VERSION } from "./layout.ts";
import type { Commit, Store } from "./store.ts";

const FORMAT_VERSION = 1;

interface ExportHeader {
  readonly penstock: "export";
  readonly format: number;
  /** Version of the keys and values. */
  readonly schema: number;
  /** The kind of store that it was made from. */
  readonly engine: string;
  /** The name of the service. */
  readonly service: string;
  readonly exportedAt: string;
}

/** The last line. */
export interface ExportEnd {
  readonly rows: number;
  /** Rows by what they are, for people. */
  readonly kinds: Readonly<Record<string, number>>;
  /** Of all bytes before this line. */
  readonly sha256: string;
}

export const exportHeader = (engine: string, service: string): ExportHeader => ({
  penstock: "export",
  format: FORMAT_VERSION,
  schema: LAYOUT_VERSION,
  engine,
  service,
  exportedAt: new Date().toISOString(),
});

/** @throws Error with a message for the user when this release cannot import what follows */
function checkHeader(line: string): void {
  const header = parse(line) as Partial<ExportHeader> | null | undefined;
  if (header?.penstock !== "export") throw new Error("it is no export of Penstock");
  const { format, schema } = header;
  if (format !== FORMAT_VERSION) {
    throw new Error(`it has format ${format}, this version knows ${FORMAT_VERSION}: use the version that wrote it`);
  }
  if (schema === LAYOUT_VERSION) return;
  throw new Error(
    `it was written by another version (schema ${schema}; this one knows ${LAYOUT_VERSION}): ` +
      (Number(schema) > LAYOUT_VERSION
        ? "import it with that version"
        : "import it with that version into a new store, and run penstock migrate"),
  );
}

/** Prefix of all counters: they are added to, and an engine may keep them in a way of its own. */
const COUNTERS = "n/";
const isCounter = (key: string, value: string): boolean => key.startsWith(COUNTERS) && /^(0|-?[1-9]\d*)$/.test(value);

/** Whether a row belongs to one process, and means nothing in another store. */
const isOfProcess = (key: string): boolean => key.startsWith(PROCESSES);

const rowLine = (key: string, value: string): string =>
  `${JSON.stringify([key, isCounter(key, value) ? Number(value) : value])}\n`;

type ParsedLine = { readonly row: readonly [key: string, value: string | number] } | { readonly end: ExportEnd };

/** Null when it is neither a row nor the end. Whether keys and values are possible is for the store to say. */
function parseLine(line: string): ParsedLine | null {
  const parsed = parse(line);
  if (!Array.isArray(parsed)) {
    return typeof (parsed as ExportEnd | null | undefined)?.sha256 === "string" ? { end: parsed as ExportEnd } : null;
  }
  const [key, value] = parsed as unknown[];
  const isValue = typeof value === "string" || Number.isSafeInteger(value);
  return parsed.length === 2 && typeof key === "string" && isValue ? { row: [key, value as string | number] } : null;
}

function parse(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

const KINDS: readonly (readonly [RegExp, string])[] = [
  [/^c\/[^/]+\/n$/, "conversations"],
  [/^c\/[^/]+\/m\//, "messages"],
  [/^(x\/[^/]+\/r$|xo\/)/, "executions"],
  [/^h\//, "runs"],
  [/^a2\//, "tasks"],
  [/^kv\//, "entries of plugins"],
  [/^t[dh]\//, "rows of traces"],
  [/^semantic\//, "rows of search indexes"],
];

/** Counts rows and their bytes on the way. */
class RowTally {
  #rows = 0;
  readonly #kinds = new Map<string, number>();
  readonly #hash: Hash = createHash("sha256");

  get rows(): number {
    return this.#rows;
  }

  /** Counts a row by its key. */
  count(key: string): void {
    const kind = KINDS.find(([pattern]) => pattern.test(key))?.[1] ?? "other rows";
    this.#kinds.set(kind, (this.#kinds.get(kind) ?? 0) + 1);
    this.#rows++;
  }

  /** Adds bytes to the checksum. */
  hash(bytes: string | Uint8Array): void {
    this.#hash.update(bytes);
  }

  /** To be called once, last. */
  end(): ExportEnd {
    return { rows: this.#rows, kinds: Object.fromEntries(this.#kinds), sha256: this.#hash.digest("hex") };
  }
}

// Every row of a store as lines of JSON, to be imported into a store of any engine.

/** Fewer and larger writes. */
const CHARACTERS_PER_PIECE = 64 * 1024;

/**
 * The pieces of the file, in bounded memory. The store must not change meanwhile.
 *
 * @param onEnd gets what the last line says
 */
export async function* exportRows(
  store: Store,
  header: ExportHeader,
  onEnd: (end: ExportEnd) => void,
): AsyncGenerator<string, void> {
  const tally = new RowTally();
  let piece = `${JSON.stringify(header)}\n`;
  for await (const { key, value } of everyRow(store)) {
    if (isOfProcess(key)) continue;
    piece += rowLine(key, value);
    tally.count(key);
    if (piece.length < CHARACTERS_PER_PIECE) continue;
    tally.hash(piece);
    yield piece;
    piece = "";
  }
  tally.hash(piece);
  const end = tally.end();
  onEnd(end);
  yield `${piece}${JSON.stringify(end)}\n`;
}

// Puts an export into an empty store. A row marks the store until everything is there, and no service starts on it meanwhile.

/** No line of an export is longer: what the API takes in is far smaller. */
const MAX_LINE_BYTES = 256 * 1024 * 1024;
const LINE_FEED = 0x0a;

/** Lines, each with its line feed; of the last one it may be missing. @throws Error with a message for the user when one is too long */
async function* linesOf(input: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer, undefined> {
  let begun: Buffer[] = [];
  let size = 0;
  for await (const bytes of input) {
    const chunk = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let from = 0;
    for (let at = chunk.indexOf(LINE_FEED); at !== -1; at = chunk.indexOf(LINE_FEED, from)) {
      const rest = chunk.subarray(from, at + 1);
      yield begun.length === 0 ? rest : Buffer.concat([...begun, rest]);
      begun = [];
      size = 0;
      from = at + 1;
    }
    if (from === chunk.length) continue;
    begun.push(chunk.subarray(from));
    size += chunk.length - from;
    if (size > MAX_LINE_BYTES) throw new Error(`a line is longer than ${MAX_LINE_BYTES} bytes`);
  }
  if (begun.length > 0) yield Buffer.concat(begun);
}

const MARKER = "import/unfinished";

const ROWS_PER_COMMIT = 1_000;
const CHARACTERS_PER_COMMIT = 4 * 1024 * 1024;

/** What was put by others is not cleared: it may be a service's work. */
class OtherWriter extends Error {
  constructor(what: string, options?: ErrorOptions) {
    super(`${what} meanwhile: stop it, and import into a new store`, options);
  }
}

/** @throws Error with a message for the user when an import did not come to its end */
export async function requireNoImport(store: Store): Promise<void> {
  if ((await store.get(MARKER)) === undefined) return;
  throw new Error("an import into it did not come to its end: run penstock import again, which begins anew");
}

/**
 * @param input the bytes of an export
 * @returns what the last line says
 * @throws Error with a message for the user. The store is empty then, or it is marked, and the next import clears it
 */
export async function importRows(store: Store, input: AsyncIterable<Uint8Array>): Promise<ExportEnd> {
  const lines = linesOf(input);
  const first = await lines.next();
  if (first.done) throw new Error("it is empty");
  checkHeader(first.value.toString());
  const marked = await mark(store);
  const tally = new RowTally();
  tally.hash(first.value);
  try {
    const end = await putRows(store, marked, lines, tally);
    if ((await signsOfLife(store)).length > 0) throw new OtherWriter("a service has started on the store");
    await expectingMark(store, marked, { delete: [MARKER] });
    return end;
  } catch (error) {
    if (error instanceof OtherWriter) throw error;
    // What fails here again is left to the next import.
    await clear(store, marked)
      .then(() => expectingMark(store, marked, { delete: [MARKER] }))
      .catch(() => {});
    throw error;
  }
}

/**
 * The row of an import that did not come to its end is written anew, so that this import goes on alone, also where the other one still
 * runs.
 *
 * @returns the revision of the row
 */
async function mark(store: Store): Promise<number> {
  const known = await store.get(MARKER);
  if (known === undefined && !(await isEmpty(store))) throw new Error("the store is not empty: name a new one");
  const marked = await expectingMark(store, known?.revision ?? null, {
    put: [[MARKER, JSON.stringify(new Date().toISOString())]],
  });
  if (known !== undefined) await clear(store, marked);
  return marked;
}

const clear = (store: Store, marked: number): Promise<void> =>
  clearAllBut(store, MARKER, (commit) => expectingMark(store, marked, commit));

/** @throws OtherWriter when another import has begun */
async function expectingMark(store: Store, marked: number | null, commit: Commit): Promise<number> {
  try {
    return await store.commit({ ...commit, expect: [...(commit.expect ?? []), [MARKER, marked]] });
  } catch (error) {
    if (!(error instanceof CommitConflict)) throw error;
    const what = error.keys.includes(MARKER) ? "another import has begun" : "another process has written to the store";
    throw new OtherWriter(what, { cause: error });
  }
}

interface Batch {
  readonly put: [key: string, value: string][];
  readonly add: [key: string, value: number][];
  characters: number;
}

const newBatch = (): Batch => ({ put: [], add: [], characters: 0 });

/** @throws Error when a row is impossible, or when the end does not fit what came before it */
async function putRows(
  store: Store,
  marked: number,
  lines: AsyncIterable<Buffer>,
  tally: RowTally,
): Promise<ExportEnd> {
  let batch = newBatch();
  let last = "";
  let end: ExportEnd | undefined;
  for await (const bytes of lines) {
    if (end !== undefined) throw new Error("there is more after its last line: it was changed");
    const line = parseLine(bytes.toString());
    if (line === null)
      throw new Error(`line ${tally.rows + 2} is neither a row nor the end: it was cut off or changed`);
    if ("end" in line) {
      end = line.end;
      continue;
    }
    const [key, value] = line.row;
    // So that no key is there twice.
    if (key <= last) throw new Error(`line ${tally.rows + 2}: its key is not behind that of the line before`);
    if (isOfProcess(key) || key === MARKER) throw new Error(`line ${tally.rows + 2}: ${key} is no row of an export`);
    last = key;
    tally.hash(bytes);
    tally.count(key);
    addRow(batch, key, value);
    if (batch.put.length + batch.add.length < ROWS_PER_COMMIT && batch.characters < CHARACTERS_PER_COMMIT) continue;
    await commitBatch(store, marked, batch, tally.rows + 1);
    batch = newBatch();
  }
  await commitBatch(store, marked, batch, tally.rows + 1);
  const found = tally.end();
  if (end === undefined)
    throw new Error(`its last line is missing: it was cut off after ${counted(found.rows, "rows")}`);
  if (end.rows !== found.rows)
    throw new Error(`it has ${counted(found.rows, "rows")} and should have ${end.rows}: it was changed`);
  if (end.sha256 !== found.sha256) throw new Error("its checksum is another one: it was changed");
  return found;
}

function addRow(batch: Batch, key: string, value: string | number): void {
  batch.characters += key.length;
  if (typeof value === "number") batch.add.push([key, value]);
  else {
    batch.put.push([key, value]);
    batch.characters += value.length;
  }
}

/** @param line the last one whose row is in the batch */
async function commitBatch(store: Store, marked: number, { put, add }: Batch, line: number): Promise<void> {
  try {
    // Nothing is there yet: whoever else writes is found.
    await expectingMark(store, marked, { put, add, expect: put.map(([key]) => [key, null]) });
  } catch (error) {
    if (error instanceof TypeError) throw new Error(`before line ${line + 1}: ${messageOf(error)}`, { cause: error });
    throw error;
  }
}
