/** One agent, and a chat with it. */
import { segment } from "./api.js";
import { buildChat } from "./chat.js";
import { element } from "./elements.js";
import { badge, facts, load, section } from "./parts.js";
import { linkTo } from "./router.js";

/** @import { AgentDetail } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** @param {Place} place */
export function agentView(place) {
  const { api, params, signal, body, title } = place;
  /** @type {Promise<AgentDetail>} */
  const asked = api.get(`agents/${segment(params.id)}`, { signal });
  const about = element("div");
  const chat = section("Chat", buildChat(place, `agents/${segment(params.id)}/stream`));
  body.append(about, chat);
  return load(place, about, asked, (agent) => {
    title(agent.name);
    return [
      element("p", { class: "lead" }, agent.description),
      facts([
        ["Status", badge(agent.status)],
        ["Model", element("code", {}, agent.model)],
        ["Tools", agent.tools.join(", ")],
        ["Delegates to", agent.subAgents.map(({ name }) => name).join(", ")],
        ["Memory", agent.memory === null ? "none" : "yes"],
        [
          "Traces",
          element("a", { href: linkTo("traces", { entityType: "agent", entityId: agent.id }) }, "of this agent"),
        ],
      ]),
    ];
  });
}
