/** The bar at the top, the place of the views, and announcements for screen readers. */
import { element } from "./elements.js";

const SECTIONS = [
  ["", "Overview"],
  ["agents", "Agents"],
  ["workflows", "Workflows"],
  ["executions", "Executions"],
  ["traces", "Traces"],
  ["logs", "Logs"],
];

/**
 * Puts the bar above the page that the server wrote, and a place for the other views below it.
 *
 * @param {{ openCredentials(): void }} actions
 */
export function buildShell({ openCredentials }) {
  const landing = /** @type {HTMLElement} */ (document.getElementById("landing"));
  landing.tabIndex = -1;
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
    (main.hidden ? landing : main).focus();
  }

  document.body.prepend(skip, bar);
  document.body.append(main, status);
  return {
    main,
    landing,
    /** @param {string} text */
    announce(text) {
      status.textContent = text;
    },
    /** @param {string} path */
    shown(path) {
      const present = path.split("/", 1)[0];
      for (const [index, link] of links.entries()) {
        if (SECTIONS[index]?.[0] !== present) {
          link.removeAttribute("aria-current");
          continue;
        }
        link.setAttribute("aria-current", "page");
        link.scrollIntoView({ block: "nearest", inline: "nearest" });
      }
    },
  };
}
