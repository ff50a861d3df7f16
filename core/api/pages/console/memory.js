/** What is remembered: conversations of each memory, and one of them with its messages and its working memory. */
import { segment } from "./api.js";
import { conversationList } from "./conversation-list.js";
import { element } from "./elements.js";
import { filterForm } from "./listing.js";
import { markdown } from "./markdown-flow.js";
import { messageView } from "./message-view.js";
import { moment } from "./moments.js";
import { facts, jsonDetails, load, section } from "./parts.js";
import { linkTo } from "./router.js";

/** @import { AgentSummary, MessageList, WorkingMemory } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

const MOST_MESSAGES = "500";

/** @param {AgentSummary} agent */
const memoryOf = ({ id, memory }) => String(memory?.config?.name ?? id);

/** @param {Place} place */
export async function memoryView(place) {
  const { api, query, signal, body } = place;
  /** @type {AgentSummary[]} */
  const agents = await api.get("agents", { signal });
  if (signal.aborted) return;
  const remembering = agents.filter(({ memory }) => memory !== null);
  // Several agents may have one memory: any of them stands for it.
  const memories = [...new Map(remembering.map((agent) => [memoryOf(agent), agent])).values()];
  const agentId = query.get("agent") ?? memories[0]?.id;
  if (agentId === undefined) return void body.append(element("p", { class: "quiet" }, "No agent has a memory."));
  const chosen = agents.find(({ id }) => id === agentId);
  const options = memories.map((agent) => /** @type {const} */ ([agent.id, memoryOf(agent)]));
  const { body: list } = conversationList(place, {
    agentId,
    memory: chosen?.memory ?? null,
    link: ({ id, userId }) => linkTo(`memory/${segment(agentId)}/${segment(id)}`, { userId }),
  });
  if (memories.length > 1)
    body.append(filterForm("memory", [{ name: "agent", label: "Memory", value: agentId, options }]));
  body.append(section("Conversations", list));
}

/** @param {Place} place */
export function conversationView(place) {
  const { api, params, query, signal, body, title } = place;
  const { agentId = "", conversationId = "" } = params;
  const userId = query.get("userId") ?? "";
  const path = `api/memory/conversations/${segment(conversationId)}`;
  const owner = new URLSearchParams({ agentId, ...(userId !== "" && { userId }) });
  const kept = element("div");
  const said = element("div");
  body.append(said, kept);
  /** @type {Promise<WorkingMemory>} */
  const working = api.get(`${path}/working-memory?${owner}`, { signal });
  void load(place, kept, working, workingMemory);
  /** @type {Promise<MessageList>} */
  const asked = api.get(`${path}/messages?${owner}&limit=${MOST_MESSAGES}`, { signal });
  return load(place, said, asked, ({ conversation, messages }) => {
    title(conversation.title || conversation.id);
    const chat = linkTo(`agents/${segment(conversation.resourceId)}`, { conversation: conversation.id, userId });
    return [
      facts([
        ["Id", element("code", {}, conversation.id)],
        ["User", conversation.userId],
        ["Belongs to", conversation.resourceId],
        ["Began", moment("ago", conversation.createdAt)],
        ["Last changed", moment("ago", conversation.updatedAt)],
        ["Chat", element("a", { href: chat }, "go on with it")],
        [
          "Log",
          element(
            "a",
            { href: linkTo("logs", { level: "trace", conversationId: conversation.id }) },
            "of this conversation",
          ),
        ],
      ]),
      Object.keys(conversation.metadata).length > 0 && jsonDetails("Metadata", conversation.metadata),
      section(
        "Messages",
        messages.length === 0 && element("p", { class: "quiet" }, "None."),
        ...messages.map(messageView),
      ),
    ];
  });
}

/** @param {WorkingMemory} memory */
function workingMemory({ content, scope, format }) {
  const whose = scope === "user" ? "Of the user, in all conversations" : "Of this conversation";
  return section(
    "Working memory",
    element("h3", {}, whose),
    content === null
      ? element("p", {}, "Nothing yet.")
      : format === "json"
        ? element("pre", { class: "json", tabindex: 0, role: "group", "aria-label": "JSON" }, content)
        : markdown(content),
  );
}
