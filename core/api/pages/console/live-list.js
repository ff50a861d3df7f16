/** A page of records, newest first, which is drawn again when it differs. */
import { element, replace } from "./elements.js";
import { pager } from "./listing.js";
import { changes, keepAsking } from "./live.js";
import { table } from "./parts.js";

/** @import { Child } from "./elements.js" */
/** @import { Place } from "./router.js" */

/** Records of a page. */
export const PAGE = 25;
const PAUSE = 3000;

/**
 * @template T
 * @typedef {object} Listed
 * @property {string} title of the table; in small letters it is the path of the view too
 * @property {readonly string[]} heads
 * @property {number} page from 0
 * @property {() => Promise<readonly T[]>} find the records of the page, and one more where another page follows
 * @property {(record: T) => readonly Child[]} row the cells; the link in the first has an id, by which it keeps the focus
 * @property {HTMLElement} list where they are shown
 * @property {HTMLElement} failure where a failure is shown
 * @property {number} [pause] between two requests, in milliseconds
 */

/**
 * Goes on for as long as the view is there.
 *
 * @template T
 * @param {Place} place
 * @param {Listed<T>} listed
 * @returns {() => Promise<void>} asks at once
 */
export function liveList(place, { title, heads, page, find, row, list, failure, pause = PAUSE }) {
  const { query, signal } = place;
  const path = title.toLowerCase();
  const filters = Object.fromEntries([...query].filter(([name]) => name !== "page"));
  const differs = changes();

  async function ask() {
    const found = await find();
    if (signal.aborted || !differs(found)) return;
    const focused = document.activeElement?.id ?? "";
    replace(
      list,
      found.length === 0
        ? element("p", { class: "quiet" }, `No ${path}.`)
        : table(title, heads, found.slice(0, PAGE).map(row)),
      pager(path, filters, page, found.length > PAGE),
    );
    if (focused !== "" && document.activeElement === document.body) document.getElementById(focused)?.focus();
  }

  void keepAsking(place, pause, ask, failure).then(() => replace(list));
  return ask;
}
