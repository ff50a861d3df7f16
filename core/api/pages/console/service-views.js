/** What the four views about the service as a whole share: the way from one to the other, and how their values are written. */
import { numberText } from "./activity-chart.js";
import { element } from "./elements.js";

const VIEWS = [
  ["limits", "Limits"],
  ["models", "Models"],
  ["manifest", "Manifest"],
  ["routes", "Routes"],
];

/** @param {string} present the last segment of the view's address */
export const serviceNavigation = (present) =>
  element(
    "nav",
    { class: "tabs", "aria-label": "Service" },
    ...VIEWS.map(([path, label]) =>
      element("a", { href: `#/service/${path}`, "aria-current": path === present ? "page" : undefined }, label ?? ""),
    ),
  );

export const serviceView = () => location.replace("#/service/limits");

/** The largest first. @type {Record<string, readonly (readonly [size: number, name: string])[]>} */
const SCALES = {
  bytes: [
    [1024 ** 3, "GiB"],
    [1024 ** 2, "MiB"],
    [1024, "KiB"],
    [1, "bytes"],
  ],
  milliseconds: [
    [86_400_000, "days"],
    [3_600_000, "h"],
    [60_000, "min"],
    [1000, "s"],
    [1, "ms"],
  ],
};

/**
 * A time or a size in the largest unit that it fills, with at most one digit after the point; any other number as it is.
 *
 * @param {number} value
 * @param {string} [unit]
 */
export function amountText(value, unit) {
  const scale = SCALES[unit ?? ""];
  if (scale === undefined) return numberText(value);
  const [size, name] = scale.find(([least]) => value >= least) ?? [1, scale.at(-1)?.[1]];
  return `${Math.round((value / size) * 10) / 10} ${value === 86_400_000 ? "day" : name}`;
}

/**
 * A name with what it is for below it.
 *
 * @param {HTMLElement | string} name
 * @param {string} [description]
 */
export const described = (name, description) =>
  element(
    "span",
    { class: "wraps" },
    name,
    description !== undefined && description !== "" && element("span", { class: "about" }, ...withCode(description)),
  );

/** What stands between backticks is code. @param {string} text */
const withCode = (text) => text.split("`").map((part, index) => (index % 2 === 0 ? part : element("code", {}, part)));

/** @param {string} source */
export const sourceView = (source) => element("span", { class: "wraps is-narrow" }, source);

/** Whether a text has all words of a search. @param {string} search @param {readonly string[]} texts */
export function hasWords(search, texts) {
  const all = texts.join("\n").toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}
