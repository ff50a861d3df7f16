/** The agents of the service. */
import { segment } from "./api.js";
import { element } from "./elements.js";
import { counted } from "./formats.js";
import { badge, load } from "./parts.js";

/** @import { AgentSummary } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** @param {Place} place */
export function agentsView(place) {
  const { api, signal, body } = place;
  /** @type {Promise<AgentSummary[]>} */
  const asked = api.get("agents", { signal });
  return load(place, body, asked, (agents) =>
    agents.length === 0
      ? element("p", { class: "quiet" }, "This service has no agents.")
      : element("ul", { class: "cards" }, ...agents.map(card)),
  );
}

/** @param {AgentSummary} agent */
function card({ id, name, description, status, model, tools, subAgents }) {
  const link = element("a", { href: `#/agents/${segment(id)}` }, name);
  const counts = [counted(tools.length, "tool"), subAgents.length > 0 ? counted(subAgents.length, "sub-agent") : ""];
  return element(
    "li",
    { class: "card" },
    element("h2", {}, link),
    element("p", {}, description),
    element("p", { class: "meta" }, badge(status), element("code", {}, model), counts.filter(Boolean).join(", ")),
  );
}
