/** Filters and page numbers of a list, which are kept in the address. */
import { element } from "./elements.js";
import { field } from "./parts.js";
import { linkTo } from "./router.js";

/** @typedef {{ name: string, label: string, value: string, form?: string, options?: (readonly [value: string, label: string])[] }} Filter without options it is a text, whose form may be shown */

/** The page that a query names, from 0. @param {URLSearchParams} query */
export const pageOf = (query) => Math.max(0, Math.floor(Number(query.get("page") ?? 0)) || 0);

/** @type {(readonly [since: string, label: string, milliseconds: number])[]} */
const RANGES = [
  ["", "any time", 0],
  ["hour", "the last hour", 3_600_000],
  ["day", "the last day", 86_400_000],
  ["week", "the last week", 604_800_000],
];

/** Since when records are listed. @param {URLSearchParams} query @returns {Filter} */
export const rangeFilter = (query) => ({
  name: "since",
  label: "Began in",
  value: query.get("since") ?? "",
  options: RANGES.map(([value, label]) => [value, label]),
});

/** The moment that the range of a query begins at; empty without one. @param {URLSearchParams} query */
export function fromOf(query) {
  const [, , milliseconds = 0] = RANGES.find(([since]) => since === query.get("since")) ?? [];
  return milliseconds === 0 ? "" : new Date(Date.now() - milliseconds).toISOString();
}

/** The longest list that the service gives. */
export const MOST_LISTED = 500;
/** Between two requests for such a list, in milliseconds. */
export const SLOW_PAUSE = 15_000;

/** Orders that the service does not know. @type {Record<string, string>} */
const ORDERS = { "": "newest first", oldest: "oldest first", longest: "longest first", dearest: "dearest first" };

/**
 * A search for text and an order, among the newest records that the other filters leave.
 *
 * @param {URLSearchParams} query
 * @param {readonly string[]} orders beside the newest first
 */
export function choice(query, orders) {
  const [text, order] = ["text", "order"].map((name) => query.get(name) ?? "");
  const isMade = Boolean(text || order);
  return {
    /** @type {Filter[]} */
    filters: [
      { name: "text", label: "Text", value: text ?? "" },
      {
        name: "order",
        label: "Order",
        value: order ?? "",
        options: ["", ...orders].map((each) => /** @type {const} */ ([each, ORDERS[each] ?? each])),
      },
    ],
    isMade,
    hint:
      isMade &&
      element("p", { class: "hint" }, `Text and order are of the newest ${MOST_LISTED} that the other filters leave.`),
    /**
     * @template T
     * @param {readonly T[]} records the newest first
     * @param {Record<string, (record: T) => number>} sizes by the order that has the largest first
     */
    of(records, sizes) {
      const found = records.filter((record) =>
        JSON.stringify(record)
          .toLowerCase()
          .includes((text ?? "").toLowerCase()),
      );
      const sizeOf = sizes[order ?? ""];
      if (sizeOf !== undefined) return found.sort((a, b) => sizeOf(b) - sizeOf(a));
      return order === "oldest" ? found.reverse() : found;
    },
  };
}

/** @param {string} from @param {string} [to] in milliseconds, until now when it is missing */
export const lengthOf = (from, to) => (to === undefined ? Date.now() : Date.parse(to)) - Date.parse(from);

/**
 * @param {string} path of the view
 * @param {readonly Filter[]} filters
 * @param {Record<string, string>} [others] what else stays in the address
 */
export function filterForm(path, filters, others = {}) {
  const controls = filters.map((filter) => {
    const control = controlOf(filter, apply);
    return { name: filter.name, control, body: field(filter.label, control) };
  });

  function apply() {
    const chosen = Object.fromEntries(controls.map(({ name, control }) => [name, control.value.trim()]));
    location.hash = linkTo(path, { ...others, ...chosen });
  }

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    apply();
  }

  return element(
    "form",
    { class: "filters", "aria-label": "Filters", onsubmit: submit },
    ...controls.map(({ body }) => body),
  );
}

/** @param {Filter} filter @param {() => void} changed */
function controlOf({ name, value, form, options }, changed) {
  const id = `filter-${name}`;
  if (options === undefined)
    return element("input", { id, name, value, placeholder: form, onchange: changed, autocomplete: "off" });
  const items = options.map(([key, text]) => element("option", { value: key, selected: key === value }, text));
  return element("select", { id, name, onchange: changed }, ...items);
}

/**
 * @param {string} path of the view
 * @param {Record<string, string>} query
 * @param {number} page from 0
 * @param {boolean} more whether another page follows
 */
export function pager(path, query, page, more) {
  if (page === 0 && !more) return null;
  /** @param {number} number @param {string} label @param {string} id */
  const link = (number, label, id) =>
    element(
      "a",
      { id, class: "button", href: linkTo(path, { ...query, page: number === 0 ? "" : String(number) }) },
      label,
    );
  return element(
    "nav",
    { class: "pager", "aria-label": "Pages" },
    page > 0 && link(page - 1, "Newer", "page-newer"),
    element("span", { class: "quiet" }, `Page ${page + 1}`),
    more && link(page + 1, "Older", "page-older"),
  );
}
