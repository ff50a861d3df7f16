/** What there is to open: agents to chat with, workflows to run, and how a program calls them. */
import { segment } from "./api.js";
import { element } from "./elements.js";
import { section } from "./parts.js";

/** @import { AgentSummary, WorkflowSummary } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** @param {Place} place */
export async function waysIn({ api, signal, body }) {
  try {
    const [agents, workflows] = await Promise.all([
      /** @type {Promise<AgentSummary[]>} */ (api.get("agents", { signal })),
      /** @type {Promise<WorkflowSummary[]>} */ (api.get("workflows", { signal })),
    ]);
    if (signal.aborted) return;
    const chats = agents.map(({ id, name, description }) => way(`agents/${segment(id)}`, "Chat", name, description));
    const runs = workflows.map(({ id, name, purpose }) => way(`workflows/${segment(id)}`, "Run", name, purpose));
    body.append(
      element(
        "div",
        { class: "halves" },
        chats.length > 0 && section("Agents", element("ul", { class: "items" }, ...chats)),
        runs.length > 0 && section("Workflows", element("ul", { class: "items" }, ...runs)),
      ),
      forPrograms(api.pageAddress("ui"), "./docs"),
    );
  } catch {
    // The sections above say why nothing can be read.
  }
}

/** @param {string} path @param {string} verb @param {string} name @param {string} about */
const way = (path, verb, name, about) =>
  element(
    "li",
    {},
    element("p", { class: "meta" }, element("a", { href: `#/${path}`, "aria-label": `${verb}: ${name}` }, name)),
    about !== "" && element("p", { class: "quiet" }, about),
  );

/** With the commands of the page for browsers without scripts, where the server sent it. @param {string} explorer @param {string} manual */
function forPrograms(explorer, manual) {
  const commands = [...document.querySelectorAll("#landing pre")].map(({ textContent }) =>
    element("pre", { class: "json", tabindex: 0, role: "group", "aria-label": "Command" }, textContent ?? ""),
  );
  return section(
    "For programs",
    element("p", {}, element("a", { href: explorer }, "API explorer"), ": every endpoint, to try."),
    element(
      "p",
      {},
      element("a", { href: manual }, "Manual"),
      ": a tutorial, every key of the manifest, what to do when.",
    ),
    commands.length > 0 &&
      element("details", { class: "fold" }, element("summary", {}, "Commands that work as they stand"), ...commands),
  );
}
