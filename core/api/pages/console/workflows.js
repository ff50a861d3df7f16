/** The workflows of the service. */
import { segment } from "./api.js";
import { element } from "./elements.js";
import { counted } from "./formats.js";
import { badge, load } from "./parts.js";

/** @import { WorkflowSummary } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** @param {Place} place */
export function workflowsView(place) {
  const { api, signal, body } = place;
  /** @type {Promise<WorkflowSummary[]>} */
  const asked = api.get("workflows", { signal });
  return load(place, body, asked, (workflows) =>
    workflows.length === 0
      ? element("p", { class: "quiet" }, "This service has no workflows.")
      : element("ul", { class: "cards" }, ...workflows.map(card)),
  );
}

/** @param {WorkflowSummary} workflow */
function card({ id, name, purpose, stepsCount, status }) {
  return element(
    "li",
    { class: "card" },
    element("h2", {}, element("a", { href: `#/workflows/${segment(id)}` }, name)),
    element("p", {}, purpose),
    element("p", { class: "meta" }, badge(status), element("code", {}, id), counted(stepsCount, "step")),
  );
}
