/** Times as people say them: "10 min ago". They go on while the page is open. */
import { element } from "./elements.js";

/** Between two corrections of what is shown, in milliseconds. */
const PAUSE = 5000;

/** @typedef {"ago" | "for" | "in"} Kind since when something was, for how long it has been, when it will be */

/** @type {Record<Kind, (iso: string, now: number) => string>} */
const TEXTS = {
  ago: (iso, now) => (now - Date.parse(iso) < 1000 ? "just now" : `${lengthText(now - Date.parse(iso))} ago`),
  for: (iso, now) => lengthText(now - Date.parse(iso)),
  in: (iso, now) => (Date.parse(iso) <= now ? "over" : `in ${lengthText(Date.parse(iso) - now)}`),
};

/** @param {number} milliseconds */
export function lengthText(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 6 * 3600) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} days`;
}

/**
 * @param {Kind} kind
 * @param {string} iso
 */
export function moment(kind, iso) {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return element("span", {}, iso);
  return element(
    "time",
    { datetime: iso, "data-kind": kind, title: date.toLocaleString() },
    TEXTS[kind](iso, Date.now()),
  );
}

/** To be called once. */
export function keepMoments() {
  setInterval(() => {
    const now = Date.now();
    for (const time of document.querySelectorAll("time[data-kind]")) {
      const text = TEXTS[/** @type {Kind} */ (time.getAttribute("data-kind"))](
        time.getAttribute("datetime") ?? "",
        now,
      );
      if (time.textContent !== text) time.textContent = text;
    }
  }, PAUSE);
}
