/** How values are written for people. */

/** @param {unknown} value */
export function jsonText(value) {
  return value === undefined ? "" : JSON.stringify(value, null, 2);
}

/**
 * A time of today without its date.
 *
 * @param {string | undefined} iso
 */
export function timeText(iso) {
  if (iso === undefined) return "";
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  const time = date.toLocaleTimeString(undefined, { hour12: false });
  return date.toDateString() === new Date().toDateString() ? time : `${date.toLocaleDateString()} ${time}`;
}

/** @param {number} milliseconds */
export function durationText(milliseconds) {
  if (milliseconds < 1) return `${(milliseconds * 1000).toFixed(0)} µs`;
  if (milliseconds < 1000) return `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return `${Math.floor(milliseconds / 60_000)} min ${Math.round((milliseconds % 60_000) / 1000)} s`;
}

/**
 * Time between two moments; until now when the second is missing.
 *
 * @param {string} from
 * @param {string} [to]
 */
export function spanText(from, to) {
  const end = to === undefined ? Date.now() : Date.parse(to);
  const milliseconds = Math.max(0, end - Date.parse(from));
  // Such times have no more than milliseconds.
  return milliseconds < 1 ? "< 1 ms" : durationText(milliseconds);
}

/**
 * @param {number} count
 * @param {string} noun
 */
export const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/**
 * @param {string} text
 * @param {number} most characters
 */
export const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** @param {number} cost in US dollars */
export const dollarText = (cost) => `$${cost < 1 ? cost.toPrecision(2) : cost.toFixed(2)}`;
