/** A value for people: an object of plain values as a list of names and values, anything else as JSON. */
import { element } from "./elements.js";
import { jsonBlock } from "./parts.js";

/** A longer text is shown as JSON, in a frame that scrolls. */
const LONGEST = 400;

/** @param {unknown} value */
const isShort = (value) =>
  value === null || typeof value !== "object" ? String(value).length <= LONGEST : JSON.stringify(value).length <= 60;

/** @param {unknown} value */
const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** @param {unknown} value */
export function valueView(value) {
  if (typeof value === "string" && isShort(value)) return element("p", { class: "said" }, value);
  if (typeof value !== "object" || value === null || Array.isArray(value)) return jsonBlock(value);
  const rows = Object.entries(value);
  if (rows.length === 0 || rows.length > 20 || !rows.every(([, each]) => isShort(each))) return jsonBlock(value);
  return element(
    "dl",
    { class: "values" },
    ...rows.map(([name, each]) => element("div", {}, element("dt", {}, name), element("dd", {}, textOf(each)))),
  );
}
