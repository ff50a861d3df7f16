/** One agent, a chat with it, and its conversations. */
import { segment } from "./api.js";
import { buildChat } from "./chat.js";
import { conversationList } from "./conversation-list.js";
import { element, replace } from "./elements.js";
import { badge, facts, load, section } from "./parts.js";
import { linkTo } from "./router.js";

/** @import { AgentDetail } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** @param {Place} place */
export function agentView(place) {
  const { api, params, query, signal, body, title } = place;
  const { id = "" } = params;
  /** @type {Promise<AgentDetail>} */
  const asked = api.get(`agents/${segment(id)}`, { signal });
  const about = element("div");
  const beside = element("div");
  let answered = () => {};
  const conversation = query.get("conversation");
  const chat = buildChat(place, id, {
    keeps: asked.then(({ memory }) => memory !== null),
    stored: conversation === null ? null : { id: conversation, userId: query.get("userId") ?? "" },
    answered: () => answered(),
  });
  const asideOfChat = element("div", { class: "beside chat-view" }, section("Chat", chat), beside);
  body.append(about, asideOfChat);
  return load(place, about, asked, (agent) => {
    title(agent.name);
    if (agent.memory !== null) {
      const list = conversationList(place, {
        agentId: id,
        own: true,
        memory: agent.memory,
        link: (each) => linkTo(`agents/${segment(id)}`, { conversation: each.id, userId: each.userId }),
      });
      answered = () => void list.refresh();
      replace(beside, section("Conversations", list.body));
    }
    return [
      element("p", { class: "lead" }, agent.description),
      facts([
        ["Status", badge(agent.status)],
        ["Model", element("code", {}, agent.model)],
        ["Tools", agent.tools.join(", ")],
        ["Delegates to", agent.subAgents.map(({ name }) => name).join(", ")],
        ["Memory", agent.memory === null ? "none" : memoryName(agent.memory.config)],
        [
          "Traces",
          element("a", { href: linkTo("traces", { entityType: "agent", entityId: agent.id }) }, "of this agent"),
        ],
      ]),
    ];
  });
}

/** @param {Record<string, unknown> | undefined} config */
const memoryName = (config) => (typeof config?.name === "string" ? config.name : "yes");
