/**
 * The format of an export: lines of JSON. The first says what it is, each further one is a row as `[key, value]`, in the order of the
 * keys, and the last one tells whether all of them are there and unchanged. The value of a counter is a number.
 */
import { createHash, type Hash } from "node:crypto";
import { PROCESSES } from "./keys.ts";
import { LAYOUT_VERSION } from "./layout.ts";

const FORMAT_VERSION = 1;

export interface ExportHeader {
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
export function checkHeader(line: string): void {
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
export const isOfProcess = (key: string): boolean => key.startsWith(PROCESSES);

export const rowLine = (key: string, value: string): string =>
  `${JSON.stringify([key, isCounter(key, value) ? Number(value) : value])}\n`;

type ParsedLine = { readonly row: readonly [key: string, value: string | number] } | { readonly end: ExportEnd };

/** Null when it is neither a row nor the end. Whether keys and values are possible is for the store to say. */
export function parseLine(line: string): ParsedLine | null {
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
export class RowTally {
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
