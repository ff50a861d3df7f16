/** Many rows packed into one text, which costs a database driver a fraction of one object per row. */
import type { Joined, Row } from "./store.ts";

/** ASCII's own separators. Keys and JSON text contain neither (check.ts refuses them). */
const FIELD_SEPARATOR = "\x1f";
const RECORD_SEPARATOR = "\x1e";

/** The SQL expression of one packed row, with `key`, `revision` and `value` in scope. */
export const PACK_ROW_SQL = "key || char(31) || revision || char(31) || value";

/** @param text the packed rows; null when there are none */
export function unpack(text: string | null): Row[] {
  if (text === null) return [];
  const rows: Row[] = [];
  for (let start = 0; start <= text.length; ) {
    let end = text.indexOf(RECORD_SEPARATOR, start);
    if (end < 0) end = text.length;
    const afterKey = text.indexOf(FIELD_SEPARATOR, start);
    const afterRevision = text.indexOf(FIELD_SEPARATOR, afterKey + 1);
    rows.push({
      key: text.slice(start, afterKey),
      value: text.slice(afterRevision + 1, end),
      revision: Number(text.slice(afterKey + 1, afterRevision)),
    });
    start = end + 1;
  }
  return rows;
}

/** The result of `Store.tail`, made of the rows in their order. */
export function joinRows(rows: readonly Row[], limit: number, other: Row | undefined): Joined {
  const text = rows.map((row) => row.value).join(",");
  return { text, first: rows.length < limit ? null : rows[0]!.key, other };
}
