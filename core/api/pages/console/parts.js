/** Parts that several views share. */
import { element, replace } from "./elements.js";
import { jsonText, shortened } from "./formats.js";

/** @import { ContentResult } from "../../../../generated/types.ts" */
/** @import { Child } from "./elements.js" */
/** @import { Place } from "./router.js" */

/** A sign and a class for each status: not everybody sees colours. */
const SIGNS = new Map([
  ["running", "▸"],
  ["working", "▸"],
  ["success", "✓"],
  ["completed", "✓"],
  ["ok", "✓"],
  ["ready", "✓"],
  ["unavailable", "✕"],
  ["suspended", "‖"],
  ["waiting", "‖"],
  ["error", "✕"],
  ["cancelled", "⊘"],
  ["skipped", "↷"],
  ["open", "?"],
  ["approved", "✓"],
  ["denied", "✕"],
  ["expired", "⊘"],
]);

/** @param {string} status */
export const signOf = (status) => SIGNS.get(status) ?? "○";

/** @param {string} status */
export const statusClass = (status) => (SIGNS.has(status) ? `is-${status}` : "is-idle");

/** @param {string} status */
export function badge(status) {
  return element(
    "span",
    { class: `badge ${statusClass(status)}` },
    element("span", { "aria-hidden": "true" }, signOf(status)),
    ` ${status}`,
  );
}

/**
 * What went wrong, in the words of the service.
 *
 * @param {unknown} error
 */
export function problem(error) {
  const text = error instanceof Error ? error.message : String(error);
  const status = error instanceof Error && "status" in error ? Number(error.status) : 0;
  return element(
    "div",
    { class: "problem", role: "alert" },
    element("p", {}, text === "Failed to fetch" ? "The service does not answer." : text),
    status === 401 &&
      element("p", {}, "Keys and tokens are asked for under ", element("strong", {}, "Credentials"), " at the top."),
  );
}

/** A text that is cut where its cell ends. @param {string} text @param {number} [most] characters */
export const clipped = (text, most = 60) =>
  text !== "" &&
  element("span", { class: "clip", title: shortened(text, 1000) }, shortened(text.replaceAll(/\s+/g, " "), most));

/** @param {unknown} value */
export function jsonBlock(value) {
  // It may scroll, so the keyboard must be able to reach it.
  return element("pre", { class: "json", tabindex: 0, role: "group", "aria-label": "JSON" }, jsonText(value));
}

/**
 * What a tool returned: pictures as such, for which nothing is fetched, addresses as links, anything else as text or JSON.
 *
 * @param {unknown} value
 */
export function resultBlock(value) {
  const { type, value: items } = /** @type {Partial<ContentResult>} */ (Object(value));
  if (type !== "content" || !Array.isArray(items)) return jsonBlock(value);
  return element("div", { class: "content" }, ...items.map(itemView));
}

/** @param {ContentResult["value"][number]} item @returns {Child} */
function itemView(item) {
  if (item.type === "text") return element("p", { class: "said" }, item.text);
  if ("url" in item) return /^https?:/i.test(item.url) ? element("a", { href: item.url }, item.url) : item.url;
  const { data, mediaType, filename = mediaType } = item;
  if (/^image\/[\w.+-]+$/.test(mediaType))
    return element("img", { src: `data:${mediaType};base64,${data}`, alt: filename });
  return element("p", { class: "quiet" }, `${filename} (${mediaType})`);
}

/**
 * @param {string} title
 * @param {unknown} value nothing is shown of undefined
 * @param {boolean} [open]
 */
export function jsonDetails(title, value, open = false) {
  if (value === undefined) return null;
  return element("details", { class: "fold", open }, element("summary", {}, title), jsonBlock(value));
}

/**
 * @param {string} title
 * @param {...Child} children
 */
export function section(title, ...children) {
  const id = `section-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return element("section", { class: "panel", "aria-labelledby": id }, element("h2", { id }, title), ...children);
}

/**
 * A control with its label above it.
 *
 * @param {string} label
 * @param {HTMLElement} control needs an `id`
 * @param {string} [hint]
 */
export function field(label, control, hint) {
  const note = hint === undefined ? null : element("p", { class: "hint", id: `${control.id}-hint` }, hint);
  if (note !== null) control.setAttribute("aria-describedby", note.id);
  return element("div", { class: "field" }, element("label", { for: control.id }, label), control, note);
}

/**
 * @param {readonly [term: string, value: Child][]} rows those without a value are left out
 */
export function facts(rows) {
  const list = element("dl", { class: "facts" });
  for (const [term, value] of rows) {
    if (value === null || value === undefined || value === false || value === "") continue;
    list.append(element("div", {}, element("dt", {}, term), element("dd", {}, value)));
  }
  return list;
}

/**
 * A table in a frame that scrolls. On a narrow screen each row is a block, with the heads before its values: the roles are written down,
 * because a browser forgets those of a table that is not laid out as one.
 *
 * @param {string} caption for screen readers
 * @param {readonly string[]} heads
 * @param {readonly (readonly Child[])[]} rows the first cell of each is its heading
 */
export function table(caption, heads, rows) {
  const head = heads.map((text) =>
    // A column of buttons has no name.
    text === "" ? element("td", { role: "cell" }) : element("th", { scope: "col", role: "columnheader" }, text),
  );
  const body = rows.map(([first, ...others]) =>
    element(
      "tr",
      { role: "row" },
      element("th", { scope: "row", role: "rowheader" }, first),
      ...others.map((cell, place) => element("td", { role: "cell", "data-head": heads[place + 1] ?? "" }, cell)),
    ),
  );
  return element(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    element(
      "table",
      { class: "rows", role: "table" },
      element("caption", { class: "unseen" }, caption),
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...head)),
      element("tbody", { role: "rowgroup" }, ...body),
    ),
  );
}

/**
 * Says that it loads, then shows what comes; a refusal is told in its place.
 *
 * @template T
 * @param {Pick<Place, "signal">} place
 * @param {HTMLElement} target
 * @param {Promise<T>} asked
 * @param {(value: T) => Child | readonly Child[]} show
 */
export async function load({ signal }, target, asked, show) {
  replace(target, element("p", { class: "quiet" }, "Loading…"));
  try {
    const value = await asked;
    if (signal.aborted) return;
    const shown = show(value);
    replace(target, .../** @type {Child[]} */ (Array.isArray(shown) ? shown : [shown]));
  } catch (error) {
    if (!signal.aborted) replace(target, problem(error));
  }
}
