/** A chat: what was said, a field to say something in, a way to stop an answer, and whose conversation it is. */
import { Answer } from "./answer.js";
import { answerFacts, newTrace } from "./answer-facts.js";
import { segment } from "./api.js";
import { element, replace } from "./elements.js";
import { counted } from "./formats.js";
import { messageView, turnView } from "./message-view.js";
import { field, problem } from "./parts.js";
import { jsonField } from "./value-form.js";

/** @import { MessageList, RawStreamPart } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */
/** @typedef {{ role: "user" | "assistant", parts: { type: "text", text: string }[] }} Message */

/**
 * What is said before it is known whether the agent has a memory, or before a stored conversation is shown, waits for that.
 *
 * @param {Place} place
 * @param {string} agentId
 * @param {{ keeps: Promise<boolean>, stored: { id: string, userId: string } | null, answered: () => void }} options whether the agent
 *   has a memory, and the conversation to go on with
 */
export function buildChat({ api, signal, announce }, agentId, { keeps, stored, answered }) {
  /** All messages so far. They are sent with every request, because an agent without a memory keeps none. @type {Message[]} */
  const said = [];
  /** @type {AbortController | null} */
  let running = null;
  const log = element("div", { class: "log", role: "log", "aria-label": "Conversation", tabindex: 0, hidden: true });
  const text = element("textarea", { id: "chat-text", rows: 2, required: true, onkeydown: sendOnEnter });
  const conversation = element("input", { id: "chat-conversation", autocomplete: "off", spellcheck: "false" });
  const user = element("input", { id: "chat-user", autocomplete: "off", spellcheck: "false" });
  const context = jsonField("chat-context", "Context (JSON)", undefined, "What templates and tools see as context.");
  const send = element("button", { type: "submit" }, "Send");
  const stop = element(
    "button",
    { type: "button", class: "plain", disabled: true, onclick: () => running?.abort() },
    "Stop",
  );
  const anew = element("button", { type: "button", class: "plain", onclick: begin }, "New chat");
  const form = element(
    "form",
    { onsubmit: submit },
    field("Your message", text, "Enter sends, Shift and Enter begins a new line."),
    element("div", { class: "actions" }, send, stop, anew),
    element(
      "details",
      { class: "fold" },
      element("summary", {}, "User, conversation and context"),
      field("User", user, "Whose conversation it is. With a token, it is the token's."),
      field("Conversation id", conversation, "Has an agent with memory keep and recall it. Empty: nothing is kept."),
      context.body,
    ),
  );
  /** What is said waits for it. @type {Promise<void>} */
  let ready;
  if (stored === null) nameConversation();
  else ready = open(stored);

  /** @param {Event} event */
  function sendOnEnter(event) {
    if (!(event instanceof KeyboardEvent) || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  }

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    const words = text.value.trim();
    if (running !== null || words === "") return;
    void ask(words);
  }

  /** With a memory, the next words begin a conversation. */
  function nameConversation() {
    ready = keeps.then((kept) => {
      if (kept && conversation.value === "") conversation.value = `console-${newTrace().id.slice(0, 12)}`;
    });
    // Whoever says something is told what is wrong.
    ready.catch(() => {});
  }

  /** Forgets what was said here. */
  function begin() {
    running?.abort();
    said.length = 0;
    replace(log);
    log.hidden = true;
    conversation.value = "";
    nameConversation();
    if (document.activeElement === anew) text.focus();
  }

  /** Shows a conversation that is stored, and goes on with it. @param {{ id: string, userId: string }} conversation */
  async function open({ id, userId }) {
    conversation.value = id;
    user.value = userId;
    const query = new URLSearchParams({ agentId, limit: "200", ...(userId !== "" && { userId }) });
    log.hidden = false;
    try {
      /** @type {MessageList} */
      const { messages } = await api.get(`api/memory/conversations/${segment(id)}/messages?${query}`, { signal });
      replace(log, ...messages.map(messageView));
      log.scrollTop = log.scrollHeight;
    } catch (error) {
      if (!signal.aborted) replace(log, problem(error));
    }
  }

  /** @param {string} words */
  async function ask(words) {
    const run = new AbortController();
    const answer = new Answer();
    const trace = newTrace();
    running = run;
    let body;
    try {
      await ready;
      body = bodyFor(words);
    } catch (error) {
      running = null;
      log.hidden = false;
      return log.append(problem(error));
    }
    const started = performance.now();
    text.value = "";
    log.hidden = false;
    log.append(
      turnView("User", element("p", { class: "said" }, words), { isMine: true }),
      turnView("Agent", answer.body, { isMine: false }),
    );
    send.disabled = true;
    stop.disabled = false;
    // Announced when it is complete: a screen reader would begin again with every piece.
    log.setAttribute("aria-busy", "true");
    try {
      const headers = { traceparent: trace.header };
      await read(answer, words, { body, headers, signal: AbortSignal.any([signal, run.signal]) });
    } catch (error) {
      if (signal.aborted) return;
      if (run.signal.aborted) answer.note("Stopped.");
      else answer.fail(error);
    } finally {
      running = null;
      send.disabled = false;
      stop.disabled = true;
      log.removeAttribute("aria-busy");
      const { usage, models } = answer;
      answer.body.append(answerFacts({ usage, models, took: performance.now() - started, traceId: trace.id }));
      scrollDown();
    }
    answered();
  }

  /** @param {string} words */
  function bodyFor(words) {
    const conversationId = conversation.value.trim();
    const userId = user.value.trim();
    const given = context.read();
    const memory = { ...(userId !== "" && { userId }), ...(conversationId !== "" && { conversationId }) };
    const options = {
      ...(Object.keys(memory).length > 0 && { memory }),
      ...(given !== undefined && { context: given }),
    };
    return { input: conversationId === "" ? [...said, message("user", words)] : words, options };
  }

  /** @param {Answer} answer @param {string} words @param {import("./api.js").Options} options */
  async function read(answer, words, options) {
    /** @type {AsyncGenerator<{ data: RawStreamPart }>} */
    const events = api.events("POST", `agents/${segment(agentId)}/stream`, options);
    try {
      for await (const { data } of events) {
        answer.take(data);
        scrollDown();
        if (data.type === "finish" && answer.usage !== undefined)
          announce(`The answer is complete: ${counted(answer.usage.totalTokens, "token")}.`);
      }
    } finally {
      // A message without an answer is taken back. With the next one, the model would take it for the question.
      if (answer.text !== "") said.push(message("user", words), message("assistant", answer.text));
    }
  }

  const scrollDown = () => {
    log.scrollTop = log.scrollHeight;
  };
  return element("div", { class: "chat" }, log, form);
}

/** @param {"user" | "assistant"} role @param {string} text @returns {Message} */
const message = (role, text) => ({ role, parts: [{ type: "text", text }] });
