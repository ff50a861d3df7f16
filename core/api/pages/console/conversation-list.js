/** Conversations, the latest first, with a search: by title, id and user, and by what was said where the memory can find it. */
import { element, replace } from "./elements.js";
import { shortened } from "./formats.js";
import { messageText } from "./message-view.js";
import { moment } from "./moments.js";
import { field, problem } from "./parts.js";

/** @import { AgentSummary, Conversation, ConversationList, SearchResults } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** @typedef {AgentSummary["memory"]} AgentMemory */

/** The most that are listed: older ones are found by what was said, and by their user. */
const MOST = 200;
const LONGEST = 90;
/** After the last key, before it is searched for, in milliseconds. */
const PAUSE = 250;

/**
 * @param {Place} place
 * @param {{ agentId: string, own?: boolean, memory: AgentMemory, link: (conversation: Conversation) => string }} options `own`: of this agent alone
 */
export function conversationList({ api, signal }, { agentId, own = false, memory, link }) {
  const search = element("input", { id: "conversation-search", type: "search", autocomplete: "off", oninput: later });
  const list = element("ul", { class: "items conversations" });
  const failure = element("div");
  /** @type {Conversation[]} */
  let known = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** Of the last search: what an earlier one finds later is not shown. */
  let turn = 0;

  function later() {
    clearTimeout(timer);
    timer = setTimeout(() => void show(), PAUSE);
  }

  /** @param {string} words @returns {Promise<{ conversation: Conversation, said: string }[]>} */
  async function said(words) {
    // Without an embedding it does not search by meaning.
    if (words.length < 3 || !memory?.config?.semantic) return [];
    try {
      const query = new URLSearchParams({ searchQuery: words, agentId, limit: "20" });
      /** @type {SearchResults} */
      const { results } = await api.get(`api/memory/search?${query}`, { signal });
      const byId = new Map(known.map((conversation) => [conversation.id, conversation]));
      const found = new Map(results.toReversed().map(({ conversationId, message }) => [conversationId, message]));
      return [...found].flatMap(([id, message]) => {
        const conversation = byId.get(id);
        return conversation === undefined ? [] : [{ conversation, said: messageText(message) }];
      });
    } catch {
      // What was found by name is still shown.
      return [];
    }
  }

  async function show() {
    const words = search.value.trim();
    const mine = ++turn;
    const letters = words.toLowerCase();
    const named = known.filter(({ id, title, userId }) => `${title}\n${id}\n${userId}`.toLowerCase().includes(letters));
    const names = new Set(named.map(({ id }) => id));
    const more = (await said(words)).filter(({ conversation }) => !names.has(conversation.id));
    if (signal.aborted || mine !== turn) return;
    const items = [
      ...named.map((conversation) => item(conversation, "")),
      ...more.map(({ conversation, said: text }) => item(conversation, text)),
    ];
    replace(list, ...(items.length > 0 ? items : [element("li", { class: "quiet" }, "No conversations.")]));
  }

  /** @param {Conversation} conversation @param {string} text @returns {HTMLElement} */
  function item(conversation, text) {
    const { id, title, userId, updatedAt } = conversation;
    return element(
      "li",
      {},
      element("p", {}, element("a", { href: link(conversation) }, shortened(title || id, LONGEST))),
      element("p", { class: "meta quiet" }, userId !== "" && element("span", {}, userId), moment("ago", updatedAt)),
      text !== "" && element("p", { class: "quiet" }, `“${shortened(text, LONGEST)}”`),
    );
  }

  async function refresh() {
    const query = new URLSearchParams({ agentId, limit: String(MOST), orderBy: "updated_at", orderDirection: "DESC" });
    if (own) query.set("resourceId", agentId);
    try {
      /** @type {ConversationList} */
      const { conversations } = await api.get(`api/memory/conversations?${query}`, { signal });
      known = conversations;
      replace(failure);
      await show();
    } catch (error) {
      if (!signal.aborted) replace(failure, problem(error));
    }
  }

  void refresh();
  return { body: element("div", {}, field("Search", search), failure, list), refresh };
}
