/** Every route and WebSocket with who may use it, and how often it was used. */
import { numberText } from "./activity-chart.js";
import { element } from "./elements.js";
import { counted } from "./formats.js";
import { filterForm } from "./listing.js";
import { load, table } from "./parts.js";
import { described, hasWords, serviceNavigation } from "./service-views.js";

/** @import { RouteState } from "../../../../generated/types.ts" */
/** @import { Child } from "./elements.js" */
/** @import { Place } from "./router.js" */

const CLASSES = ["", "public", "user", "console", "console or user"];

/** @param {Place} place */
export function routesView(place) {
  const { api, signal, query, body } = place;
  const search = query.get("search") ?? "";
  const access = query.get("access") ?? "";
  const list = element("div");
  body.append(
    serviceNavigation("routes"),
    filterForm("service/routes", [
      { name: "search", label: "Search", value: search },
      { name: "access", label: "Access", value: access, options: CLASSES.map((name) => [name, name || "any"]) },
    ]),
    list,
  );
  /** @type {Promise<RouteState[]>} */
  const asked = api.get("observability/routes", { signal });
  return load(place, list, asked, (routes) => {
    const found = routes.filter(
      (each) =>
        (access === "" || each.access.split("; ")[0] === access) &&
        hasWords(search, [each.method, each.path, each.summary, each.access]),
    );
    return found.length === 0 ? element("p", { class: "quiet" }, "No routes.") : shown(found);
  });
}

/** @param {RouteState[]} found @returns {Child[]} */
const shown = (found) => [
  element(
    "p",
    { class: "hint" },
    `${counted(found.length, "route")}. Requests are those of this process, since its start.`,
  ),
  table("Routes", ["Route", "Access", "Requests", "Refused", "Failed"], found.map(row)),
];

/** @param {RouteState} route @returns {Child[]} */
function row({ method, path, access, summary, custom, requests, refused, failed }) {
  const name = element("code", { class: "route" }, element("span", { class: "method" }, method), path);
  return [
    described(name, custom ? `${summary} (of a plugin)` : summary),
    element("span", { class: "wraps is-narrow" }, access),
    count(requests, "quiet"),
    count(refused, "is-waiting"),
    count(failed, "is-error"),
  ];
}

/** @param {number} number @param {string} className of one that is not 0 */
const count = (number, className) =>
  element("span", { class: number === 0 ? "quiet" : className === "quiet" ? "" : className }, numberText(number));
