/** Rows as one text, which costs an engine's driver a fraction of what an object for each row does. */
import type { Joined, Row } from "./store.ts";

/** JSON text and keys hold neither: ASCII's own separators (check.ts refuses them). */
const FIELD = "\x1f";
const RECORD = "\x1e";

/** SQL of one row, and of all rows, with `key`, `revision`, `value` in scope. */
export const PACK_ROW_SQL = "key || char(31) || revision || char(31) || value";

/** @param text what SQL made of the rows; null: there were none */
export function unpack(text: string | null): Row[] {
  if (text === null) return [];
  const rows: Row[] = [];
  for (let start = 0; start <= text.length; ) {
    let end = text.indexOf(RECORD, start);
    if (end < 0) end = text.length;
    const afterKey = text.indexOf(FIELD, start);
    const afterRevision = text.indexOf(FIELD, afterKey + 1);
    rows.push({
      key: text.slice(start, afterKey),
      value: text.slice(afterRevision + 1, end),
      revision: Number(text.slice(afterKey + 1, afterRevision)),
    });
    start = end + 1;
  }
  return rows;
}

/** What `Store.tail` gives, from the rows themselves in their order. */
export function joinRows(rows: readonly Row[], limit: number, beside: Row | undefined): Joined {
  const text = rows.map((row) => row.value).join(",");
  return { text, first: rows.length < limit ? null : rows[0]!.key, beside };
}
