/** The limits that the manifest sets: the value of each and where it comes from, what is in use, what was refused. */
import { numberText } from "./activity-chart.js";
import { element, replace } from "./elements.js";
import { changes, keepAsking } from "./live.js";
import { section, table } from "./parts.js";
import { linkTo } from "./router.js";
import { amountText, described, serviceNavigation, sourceView } from "./service-views.js";

/** @import { LimitState } from "../../../../generated/types.ts" */
/** @import { Child } from "./elements.js" */
/** @import { Place } from "./router.js" */

/** Between two requests, in milliseconds. */
const PAUSE = 3000;
/** Those of one provider, agent, memory, tool or workflow begin with its section. */
const OF_PARTS = /^(?:providers|agents|memory|tools|workflows)[.[]/;
/** Of a limit in use, from which it is nearly reached. */
const NEARLY = 0.8;

/** @param {Place} place */
export function limitsView(place) {
  const { api, signal, body } = place;
  const failure = element("div");
  const list = element("div", {}, element("p", { class: "quiet" }, "Loading…"));
  body.append(serviceNavigation("limits"), failure, list);
  const differs = changes();
  const ask = async () => {
    /** @type {LimitState[]} */
    const limits = await api.get("observability/limits", { signal });
    if (signal.aborted || !differs(limits)) return;
    const focused = document.activeElement?.id ?? "";
    replace(list, ...sections(limits));
    if (focused !== "" && document.activeElement === document.body) document.getElementById(focused)?.focus();
  };
  void keepAsking(place, PAUSE, ask, failure).then(() => list.querySelector(".quiet")?.remove());
}

/** @param {LimitState[]} limits @returns {Child[]} */
function sections(limits) {
  const parts = limits.filter(({ path }) => OF_PARTS.test(path));
  return [
    element(
      "p",
      { class: "hint" },
      "In use and refused: by this process, since its start. What no setting changes is in the manual, under Limits.",
    ),
    section(
      "Of the service",
      table(
        "Limits of the service",
        ["Limit", "Value", "In use", "Refused", "Comes from"],
        limits.filter((limit) => !parts.includes(limit)).map(row),
      ),
    ),
    parts.length > 0 &&
      section(
        "Of providers, agents, memories, tools and workflows",
        table(
          "Limits of providers, agents, memories, tools and workflows",
          ["Limit", "Value", "Comes from"],
          parts.map(({ path, value, unit, description, source }) => [
            limitName(path, description),
            amountText(value, unit),
            sourceView(source),
          ]),
        ),
      ),
  ];
}

/** @param {LimitState} limit @returns {Child[]} */
function row({ path, value, unit, description, source, used, refused }) {
  return [
    limitName(path, description),
    amountText(value, unit),
    used === undefined ? "" : useView(used, value, unit),
    refused === undefined ? "" : element("span", { class: refused > 0 ? "is-refused" : "quiet" }, numberText(refused)),
    sourceView(source),
  ];
}

/** @param {string} path @param {string | undefined} description */
const limitName = (path, description) =>
  described(
    element(
      "a",
      { href: linkTo("service/manifest", { search: path }), id: `limit-${path}` },
      element("code", {}, path),
    ),
    description,
  );

/** @param {number} used @param {number} value @param {string | undefined} unit */
function useView(used, value, unit) {
  const share = value > 0 ? Math.min(1, used / value) : 0;
  const text = amountText(used, unit);
  return element(
    "span",
    { class: "use" },
    text,
    element("meter", {
      min: 0,
      max: 1,
      high: NEARLY,
      value: share,
      "aria-label": `${text} of ${amountText(value, unit)}`,
    }),
  );
}
