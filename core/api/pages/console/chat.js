/** A chat box: what was said, a field to say something in, and a way to stop an answer. */
import { Answer } from "./answer.js";
import { element } from "./elements.js";
import { counted } from "./formats.js";
import { field } from "./parts.js";

/** @import { RawStreamPart } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */
/** @typedef {{ role: "user" | "assistant", parts: { type: "text", text: string }[] }} Message */

/**
 * @param {Place} place
 * @param {string} path of the agent's stream
 */
export function buildChat({ api, signal, announce }, path) {
  /** All messages so far. They are sent with every request, because an agent without a memory keeps none. @type {Message[]} */
  const said = [];
  /** @type {AbortController | null} */
  let running = null;
  const log = element("div", { class: "log", role: "log", "aria-label": "Conversation", tabindex: 0, hidden: true });
  const text = element("textarea", { id: "chat-text", rows: 2, required: true, onkeydown: sendOnEnter });
  const conversation = element("input", { id: "chat-conversation", autocomplete: "off", spellcheck: "false" });
  const send = element("button", { type: "submit" }, "Send");
  const stop = element(
    "button",
    { type: "button", class: "plain", disabled: true, onclick: () => running?.abort() },
    "Stop",
  );
  const form = element(
    "form",
    { onsubmit: submit },
    field("Your message", text, "Enter sends, Shift and Enter begins a new line."),
    element("div", { class: "actions" }, send, stop),
    element(
      "details",
      { class: "fold" },
      element("summary", {}, "Conversation"),
      field("Conversation id", conversation, "Has an agent with memory keep and recall it. Empty: nothing is kept."),
    ),
  );

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
    text.value = "";
    void ask(words);
  }

  /** @param {string} words */
  async function ask(words) {
    running = new AbortController();
    const answer = new Answer();
    log.hidden = false;
    log.append(turn("You", element("p", { class: "said" }, words)), turn("Agent", answer.body));
    send.disabled = true;
    stop.disabled = false;
    // Announced when it is complete: a screen reader would begin again with every piece.
    log.setAttribute("aria-busy", "true");
    try {
      await read(answer, words, running.signal);
    } catch (error) {
      if (signal.aborted) return;
      if (running.signal.aborted) answer.note("Stopped.");
      else answer.fail(error);
    } finally {
      running = null;
      send.disabled = false;
      stop.disabled = true;
      log.removeAttribute("aria-busy");
      scrollDown();
    }
  }

  /** @param {Answer} answer @param {string} words @param {AbortSignal} stopped */
  async function read(answer, words, stopped) {
    const conversationId = conversation.value.trim();
    const asked = message("user", words);
    const body =
      conversationId === "" ? { input: [...said, asked] } : { input: words, options: { memory: { conversationId } } };
    const options = { body, signal: AbortSignal.any([signal, stopped]) };
    /** @type {AsyncGenerator<{ data: RawStreamPart }>} */
    const events = api.events("POST", path, options);
    try {
      for await (const { data } of events) {
        answer.take(data);
        scrollDown();
        if (data.type === "finish")
          announce(`The answer is complete: ${counted(data.totalUsage.totalTokens, "token")}.`);
      }
    } finally {
      // A message without an answer is taken back. With the next one, the model would take it for the question.
      if (answer.text !== "") said.push(asked, message("assistant", answer.text));
    }
  }

  const scrollDown = () => {
    log.scrollTop = log.scrollHeight;
  };
  return element("div", { class: "chat" }, log, form);
}

/** @param {"user" | "assistant"} role @param {string} text @returns {Message} */
const message = (role, text) => ({ role, parts: [{ type: "text", text }] });

/** @param {string} who @param {HTMLElement} what */
const turn = (who, what) =>
  element("div", { class: `turn ${who === "You" ? "is-mine" : ""}` }, element("h3", {}, who), what);
