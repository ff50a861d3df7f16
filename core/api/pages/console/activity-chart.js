/** Bars for each minute of the last hour. */
import { element, shape } from "./elements.js";

const MINUTES = 60;
const MINUTE = 60_000;
const WIDTH = 10;
const HEIGHT = 100;
/** Of a bar that stands for anything at all. */
const LEAST = 2;

/** @typedef {{ name: string, className: string, values: readonly number[] }} Series one value for each minute */

/**
 * Values by minute, from 59 minutes ago until now. Minutes without one are 0.
 *
 * @template {{ from: string }} T
 * @param {readonly T[]} minutes
 * @param {(minute: T) => number} read
 * @param {number} now
 */
export function byMinute(minutes, read, now) {
  const values = Array.from({ length: MINUTES }, () => 0);
  for (const minute of minutes) {
    const age = Math.floor((now - Date.parse(minute.from)) / MINUTE);
    const place = MINUTES - 1 - Math.max(0, age);
    if (place >= 0) values[place] = (values[place] ?? 0) + read(minute);
  }
  return values;
}

/** @param {number} value */
export const numberText = (value) =>
  new Intl.NumberFormat(undefined, { notation: value < 100_000 ? "standard" : "compact" }).format(value);

/**
 * @param {string} title
 * @param {string} summary what it says, for people and for screen readers
 * @param {readonly Series[]} series stacked, the lowest first
 */
export function barChart(title, summary, series) {
  const sums = Array.from({ length: MINUTES }, (_, place) => total(series, place));
  const top = Math.max(1, ...sums);
  const bars = sums.flatMap((sum, place) => barsAt(series, place, sum, top));
  const legend =
    series.length > 1 &&
    element(
      "span",
      { class: "legend" },
      ...series.map(({ name, className }) => element("span", { class: className }, name)),
    );
  return element(
    "figure",
    { class: "chart" },
    element("figcaption", {}, element("strong", {}, title), " ", element("span", {}, summary), legend),
    shape(
      "svg",
      {
        viewBox: `0 0 ${MINUTES * WIDTH} ${HEIGHT}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `${title} in each minute of the last hour: ${summary}, at most ${numberText(Math.max(...sums))} in one`,
      },
      ...bars,
    ),
    element(
      "p",
      { class: "axis", "aria-hidden": "true" },
      element("span", {}, "an hour ago"),
      element("span", {}, `at most ${numberText(Math.max(...sums))} a minute`),
      element("span", {}, "now"),
    ),
  );
}

/** @param {readonly Series[]} series @param {number} place */
const total = (series, place) => series.reduce((sum, { values }) => sum + (values[place] ?? 0), 0);

/** @param {readonly Series[]} series @param {number} place @param {number} sum @param {number} top */
function barsAt(series, place, sum, top) {
  if (sum === 0) return [];
  let y = HEIGHT;
  const age = MINUTES - 1 - place;
  const when = age === 0 ? "this minute" : `${age} min ago`;
  return series.map(({ name, className, values }) => {
    const value = values[place] ?? 0;
    const height = value === 0 ? 0 : Math.max(LEAST, (value / top) * HEIGHT);
    y -= height;
    return shape(
      "rect",
      { class: className, x: place * WIDTH + 1, y, width: WIDTH - 2, height },
      shape("title", {}, `${when}: ${numberText(value)} ${name}`),
    );
  });
}
