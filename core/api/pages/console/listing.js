/** Filters and pages of a list, kept in the address. */
import { element } from "./elements.js";
import { field } from "./parts.js";
import { linkTo } from "./router.js";

/** @typedef {{ name: string, label: string, value: string, options: (readonly [value: string, label: string])[] }} Filter */

/**
 * @param {string} path of the view
 * @param {readonly Filter[]} filters
 */
export function filterForm(path, filters) {
  const controls = filters.map(({ name, label, value, options }) => {
    const select = element(
      "select",
      { id: `filter-${name}`, name, onchange: apply },
      ...options.map(([key, text]) => element("option", { value: key, selected: key === value }, text)),
    );
    return { name, select, body: field(label, select) };
  });

  function apply() {
    location.hash = linkTo(path, Object.fromEntries(controls.map(({ name, select }) => [name, select.value])));
  }

  return element(
    "form",
    { class: "filters", "aria-label": "Filters", onsubmit: (event) => event.preventDefault() },
    ...controls.map(({ body }) => body),
  );
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
