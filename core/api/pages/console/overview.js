/** The first view: the page that the server sent, with links into the console. */
import { element } from "./elements.js";

/** @import { Credentials } from "./credentials.js" */
/** @import { View } from "./router.js" */

const OPENED = { agents: "Chat", workflows: "Run" };

/**
 * Links of that page are opened by the browser itself, which sends no headers: the key goes into their address.
 *
 * @param {Credentials} credentials
 * @returns {View}
 */
export const overviewView = (credentials) => () => {
  for (const link of document.querySelectorAll('#landing a[href^="./"]')) {
    const [path = "", query] = (link.getAttribute("href") ?? "").split("?", 2);
    if (query === undefined) addWayIn(link, path);
    const { key } = credentials.given;
    link.setAttribute("href", key === "" ? path : `${path}?${new URLSearchParams({ key })}`);
  }
};

/** @param {Element} link @param {string} path `./agents/support` */
function addWayIn(link, path) {
  const [, kind, id] = /^\.\/(agents|workflows)\/(.+)$/.exec(path) ?? [];
  const place = link.closest("li") ?? link.parentElement;
  if (id === undefined || place === null || place.querySelector(".way-in") !== null) return;
  const label = OPENED[/** @type {keyof typeof OPENED} */ (kind)];
  const href = `#/${kind}/${id}`;
  place.append(" ", element("a", { class: "way-in", href, "aria-label": `${label}: ${link.textContent}` }, label));
}
