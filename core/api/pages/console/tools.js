/** The tools of the service. */
import { segment } from "./api.js";
import { element } from "./elements.js";
import { counted } from "./formats.js";
import { badge, load } from "./parts.js";

/** @import { Tool } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** @param {Place} place */
export function toolsView(place) {
  const { api, signal, body } = place;
  /** @type {Promise<Tool[]>} */
  const asked = api.get("tools", { signal });
  return load(place, body, asked, (tools) =>
    tools.length === 0
      ? element("p", { class: "quiet" }, "This service has no tools.")
      : element("ul", { class: "cards" }, ...tools.map(card)),
  );
}

/** @param {Tool} tool */
function card({ name, description, status, client, tags, agents }) {
  return element(
    "li",
    { class: "card" },
    element("h2", {}, element("a", { href: `#/tools/${segment(name)}` }, name)),
    element("p", {}, description),
    element(
      "p",
      { class: "meta" },
      badge(status),
      client && element("span", {}, "run by clients"),
      tags.length > 0 && element("span", {}, tags.join(", ")),
      element("span", {}, counted(agents.length, "agent")),
    ),
  );
}
