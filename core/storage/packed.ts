/** Many rows packed into one text, which costs a database driver a fraction of one object per row. */
import { EXCERPT_CHARACTERS, type Joined, type Row, type Tail } from "./store.ts";

/** ASCII's own separators. Keys and JSON text contain neither (check.ts refuses them). */
const FIELD_SEPARATOR = "\x1f";
const RECORD_SEPARATOR = "\x1e";

/** What differs between the dialects of SQL: expressions about a row, whose columns are in scope. */
export interface Dialect {
  /** The function that makes a character of its code. */
  readonly char: string;
  /** The whole value. */
  readonly whole: string;
  /** Its bytes, which are known without reading it. */
  readonly size: string;
  /** Its first and last characters. */
  readonly excerpt: string;
}
export const POSTGRES: Dialect = {
  char: "chr",
  whole: "value",
  size: "octet_length(value)",
  excerpt: `substr(value, 1, ${EXCERPT_CHARACTERS}) || right(value, ${EXCERPT_CHARACTERS})`,
};

/**
 * The SQL expression of one packed row, whose columns are in scope. In an excerpt the revision is negative, and the size comes before the
 * value.
 *
 * @param longest SQL expression of the bytes of the longest value that is packed whole
 */
export function packRowSql({ char, whole, size, excerpt }: Dialect, longest: string): string {
  const field = ` || ${char}(31) || `;
  return `key${field}CASE WHEN ${size} <= ${longest} THEN revision${field}${whole} ELSE (-revision)${field}${size}${field}${excerpt} END`;
}

/** @param text the packed rows; null when there are none */
export function unpack(text: string | null): Row[] {
  if (text === null) return [];
  const rows: Row[] = [];
  for (let start = 0; start <= text.length; ) {
    let end = text.indexOf(RECORD_SEPARATOR, start);
    if (end < 0) end = text.length;
    const afterKey = text.indexOf(FIELD_SEPARATOR, start);
    const afterRevision = text.indexOf(FIELD_SEPARATOR, afterKey + 1);
    const key = text.slice(start, afterKey);
    const revision = Number(text.slice(afterKey + 1, afterRevision));
    if (revision >= 0) rows.push({ key, value: text.slice(afterRevision + 1, end), revision });
    else {
      const afterSize = text.indexOf(FIELD_SEPARATOR, afterRevision + 1);
      const size = Number(text.slice(afterRevision + 1, afterSize));
      rows.push({ key, value: text.slice(afterSize + 1, end), revision: -revision, size });
    }
    start = end + 1;
  }
  return rows;
}

/** The row as a read gives it that wants no longer values. */
export function excerpt(row: Row, longest: number): Row {
  const { key, value, revision } = row;
  // No character has more than three bytes for one unit.
  if (row.size !== undefined || value.length * 3 <= longest) return row;
  const size = Buffer.byteLength(value);
  if (size <= longest) return row;
  return { key, value: value.slice(0, EXCERPT_CHARACTERS) + value.slice(-EXCERPT_CHARACTERS), revision, size };
}

/** Bytes of what one query gives. Several queries of this size still fit beside each other into any process. */
export const MAX_RESULT_BYTES = 32 * 1024 * 1024;

export const textLimit = (most = MAX_RESULT_BYTES): number => Math.min(most, MAX_RESULT_BYTES);

/** The result of `Store.tail`, made of the rows in their order. */
export function joinRows(rows: readonly Row[], { limit, most }: Tail, other: Row | undefined): Joined | null {
  let size = 0;
  for (const { value } of rows) size += value.length;
  if (size > textLimit(most)) return null;
  const text = rows.map((row) => row.value).join(",");
  return { text, first: rows.length < limit ? null : rows[0]!.key, other };
}
