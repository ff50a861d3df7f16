/** Every value of the manifest that is in force, and where it comes from: a line of the file, a variable, a default. */
import { element } from "./elements.js";
import { counted, shortened } from "./formats.js";
import { filterForm } from "./listing.js";
import { load, table } from "./parts.js";
import { amountText, described, hasWords, serviceNavigation, sourceView } from "./service-views.js";

/** @import { ManifestValue } from "../../../../generated/types.ts" */
/** @import { Child } from "./elements.js" */
/** @import { Place } from "./router.js" */

/** The most rows: nobody reads more, and they make a browser slow. */
const MOST = 300;
/** Characters of a value that are shown. */
const LONGEST = 300;

/** @type {(readonly [origin: string, label: string])[]} */
const ORIGINS = [
  ["", "anywhere"],
  ["manifest", "the manifest"],
  ["environment", "environment and files"],
  ["default", "defaults"],
];

/** @param {Place} place */
export function manifestView(place) {
  const { api, signal, query, body } = place;
  const search = query.get("search") ?? "";
  const origin = query.get("origin") ?? "";
  const list = element("div");
  body.append(
    serviceNavigation("manifest"),
    filterForm("service/manifest", [
      { name: "search", label: "Search", value: search },
      { name: "origin", label: "Comes from", value: origin, options: ORIGINS },
    ]),
    list,
  );
  /** @type {Promise<ManifestValue[]>} */
  const asked = api.get("observability/manifest", { signal });
  return load(place, list, asked, (values) => {
    const found = values.filter(
      (each) =>
        (origin === "" || each.origin === origin) &&
        hasWords(search, [each.path, valueText(each), each.source, each.description ?? ""]),
    );
    return found.length === 0 ? element("p", { class: "quiet" }, "No values.") : shown(found);
  });
}

/** @param {ManifestValue[]} found @returns {Child[]} */
const shown = (found) => [
  element(
    "p",
    { class: "hint" },
    `${counted(found.length, "value")}. *** came from outside the manifest; secrets and instructions of agents stay with the service.`,
  ),
  table("Values of the manifest", ["Setting", "Value", "Comes from"], found.slice(0, MOST).map(row)),
  found.length > MOST &&
    element("p", { class: "quiet" }, `${found.length - MOST} more: search for what you want to see.`),
];

/** @param {ManifestValue} value */
const valueText = ({ value, unit }) =>
  typeof value === "number" && unit !== undefined
    ? amountText(value, unit)
    : typeof value === "string"
      ? value
      : JSON.stringify(value);

/** @param {ManifestValue} entry @returns {Child[]} */
const row = (entry) => [
  described(element("code", {}, entry.path), entry.description),
  element("code", { class: "wraps" }, shortened(valueText(entry), LONGEST) || "(empty)"),
  sourceView(entry.source),
];
