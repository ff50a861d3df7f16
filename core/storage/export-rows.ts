/** Every row of a store as lines of JSON, to be imported into a store of any engine. */
import { everyRow } from "./all-keys.ts";
import { type ExportEnd, type ExportHeader, isOfProcess, RowTally, rowLine } from "./row-lines.ts";
import type { Store } from "./store.ts";

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
