/** The bar at the top, the place of the views, and announcements for screen readers. */
import { element, replace } from "./elements.js";

const SECTIONS = [
  ["", "Overview"],
  ["inbox", "Inbox"],
  ["agents", "Agents"],
  ["tools", "Tools"],
  ["workflows", "Workflows"],
  ["executions", "Executions"],
  ["runs", "Runs"],
  ["memory", "Memory"],
  ["traces", "Traces"],
  ["logs", "Logs"],
  ["service", "Service"],
];

/** Scrolls as little as it must. @type {ScrollIntoViewOptions} */
const NEAREST = { block: "nearest", inline: "nearest" };

/** The address of an execution is below that of its workflow. */
const EXECUTION = /^workflows\/[^/]+\/executions\//;

/**
 * Puts the bar and a place for the views where the server wrote a page for browsers without scripts.
 *
 * @param {{ openCredentials(): void }} actions
 */
export function buildShell({ openCredentials }) {
  const landing = document.getElementById("landing");
  if (landing !== null) landing.hidden = true;
  const main = element("main", { class: "console", id: "view", tabindex: -1 });
  const status = element("div", { class: "unseen", role: "status" });
  const links = SECTIONS.map(([path, label]) => element("a", { href: `#/${path}` }, label ?? ""));
  const skip = element("a", { class: "skip", href: "#view", onclick: skipBar }, "Skip to the content");
  const credentials = element("button", { type: "button", class: "plain", onclick: openCredentials }, "Credentials");
  const service = element("span", { class: "service" }, document.title);
  const navigation = element("nav", { "aria-label": "Console" }, ...links);
  const bar = element("header", { class: "bar" }, service, navigation, credentials);

  /** @param {Event} event the address is that of a view, not of a place in the page */
  function skipBar(event) {
    event.preventDefault();
    main.focus();
  }

  document.body.prepend(skip, bar);
  document.body.append(main, status);
  return {
    main,
    /** @param {string} text */
    announce(text) {
      replace(status, text);
    },
    /** Says how much there is to do in a section. @param {string} section @param {number} count @param {boolean} [isMore] */
    count(section, count, isMore = false) {
      const place = SECTIONS.findIndex(([path]) => path === section);
      const [, label = ""] = SECTIONS[place] ?? [];
      const mark = element("span", { class: "count", "aria-hidden": "true" }, `${count}${isMore ? "+" : ""}`);
      const link = links[place];
      if (link === undefined) return;
      replace(
        link,
        label,
        ...(count === 0
          ? []
          : [" ", mark, element("span", { class: "unseen" }, `${isMore ? " more than" : ""} ${count} open`)]),
      );
      // It has moved those behind it.
      links.find((each) => each.hasAttribute("aria-current"))?.scrollIntoView(NEAREST);
    },
    /** @param {string} path */
    shown(path) {
      const present = EXECUTION.test(path) ? "executions" : path.split("/", 1)[0];
      for (const [index, link] of links.entries()) {
        if (SECTIONS[index]?.[0] !== present) {
          link.removeAttribute("aria-current");
          continue;
        }
        link.setAttribute("aria-current", "page");
        link.scrollIntoView(NEAREST);
      }
    },
  };
}
