/** A chat: what was said, a field to say something in, a way to stop an answer, and whose conversation it is. */
import { Answer } from "./answer.js";
import { answerFacts, newTrace } from "./answer-facts.js";
import { Refusal, segment } from "./api.js";
import { approvalCard } from "./approval-card.js";
import { element, replace } from "./elements.js";
import { counted } from "./formats.js";
import { keepAsking } from "./live.js";
import { messageView, turnView } from "./message-view.js";
import { field, problem } from "./parts.js";
import { linkTo } from "./router.js";
import { runParts } from "./run-facts.js";
import { question } from "./suspension.js";
import { jsonField } from "./value-form.js";

/** @import { AgentRun, Approval, MessageList, RawStreamPart } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */
/** Between two looks at what others have said, in milliseconds. */
const PAUSE = 4000;

/** @typedef {{ role: "user" | "assistant", parts: { type: "text", text: string }[] }} Message */

/**
 * What is said before it is known whether the agent has a memory, or before a stored conversation is shown, waits for that.
 *
 * @param {Place} place
 * @param {string} agentId
 * @param {{ keeps: Promise<boolean>, stored: { id: string, userId: string } | null, answered: () => void }} options whether the agent
 *   has a memory, and the conversation to go on with
 */
export function buildChat(place, agentId, { keeps, stored, answered }) {
  const { api, signal, announce } = place;
  const address = `agents/${segment(agentId)}`;
  /** All messages so far. They are sent with every request, because an agent without a memory keeps none. @type {Message[]} */
  const said = [];
  /** @type {AbortController | null} */
  let running = null;
  /** Ends when something else is said, or another conversation begins. */
  let following = new AbortController();
  let follows = false;
  /** Whether there is anything to read of the conversation. */
  let isStored = false;
  /** What was said last and has failed or was stopped: what is stored of it has ids that nobody has told, until the next look. @type {string | null} */
  let failed = null;
  /** What the next message that is taken makes of the ones before: their questions may be withdrawn, their refusals are over. @type {(() => unknown)[]} */
  const unsettled = [];
  /** Ids of the messages that are on the page. @type {Set<string>} */
  const shown = new Set();
  const log = element("div", { class: "log", role: "log", "aria-label": "Conversation", tabindex: 0, hidden: true });
  const text = element("textarea", { id: "chat-text", rows: 2, required: true, onkeydown: sendOnEnter });
  const conversation = element("input", { id: "chat-conversation", autocomplete: "off", spellcheck: "false" });
  const user = element("input", { id: "chat-user", autocomplete: "off", spellcheck: "false" });
  const context = jsonField("chat-context", "Context (JSON)", undefined, "What templates and tools see as context.");
  const temperature = element("input", { id: "chat-temperature", type: "number", min: "0", step: "any" });
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
      element("summary", {}, "User, conversation, context and temperature"),
      field("User", user, "Whose conversation it is. With a token, it is the token's."),
      field("Conversation id", conversation, "Has an agent with memory keep and recall it. Empty: nothing is kept."),
      context.body,
      field("Temperature", temperature, "Of what is said next. Empty: the agent's own."),
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
    void tell(words);
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
    following.abort();
    shown.clear();
    isStored = false;
    said.length = 0;
    replace(log);
    log.hidden = true;
    conversation.value = "";
    nameConversation();
    // Back leads to the conversation before.
    if (location.hash !== linkTo(address)) history.pushState(null, "", linkTo(address));
    if (document.activeElement === anew) text.focus();
  }

  /** Shows a conversation that is stored, and goes on with it. @param {{ id: string, userId: string }} conversation */
  async function open({ id, userId }) {
    conversation.value = id;
    user.value = userId;
    log.hidden = false;
    try {
      await refresh(() => false);
      isStored = true;
    } catch (error) {
      if (!signal.aborted) replace(log, problem(error));
    }
  }

  /** Shows the conversation as it is stored, when that differs from what is on the page: others may go on with it. @param {() => boolean} [isBusy] */
  async function refresh(isBusy = () => running !== null || follows || !isStored) {
    const [id, userId] = [conversation.value.trim(), user.value.trim()];
    if (id === "" || isBusy()) return;
    const query = new URLSearchParams({ agentId, limit: "200", ...(userId !== "" && { userId }) });
    /** @type {MessageList} */
    const { messages } = await api.get(`api/memory/conversations/${segment(id)}/messages?${query}`, { signal });
    if (isBusy()) return;
    const news = messages.filter((each) => !shown.has(each.id));
    const isNew = shown.size === 0 || news.length > 0;
    const run = isNew ? await openRun(id) : undefined;
    if (isBusy()) return;
    for (const each of messages) shown.add(each.id);
    const isKnown = !isNew || (run === undefined && isTurnOf(failed, news));
    failed = null;
    if (isKnown) return;
    // What the run has said so far is read from its beginning.
    replace(log, ...messages.filter((each) => each.id !== answerOf(run?.runId)).map(messageView));
    scrollDown();
    if (run !== undefined) void follow(run.runId, "");
  }

  /** The kept run of a conversation that has not ended. @param {string} id */
  async function openRun(id) {
    try {
      /** @type {AgentRun[][]} */
      const found = await Promise.all(
        ["running", "waiting"].map((status) => api.get(`${address}/runs?status=${status}&limit=100`, { signal })),
      );
      return found.flat().find(({ conversationId }) => conversationId === id);
    } catch {
      // Whoever may not list runs sees what is stored.
      return undefined;
    }
  }

  /** @param {string} runId */
  function shows(runId) {
    shown.add(answerOf(runId)).add(`${answerOf(runId)}_user`);
  }

  /** @param {string} approvalId @param {(status: string) => void} settle */
  function ask(approvalId, settle) {
    const target = question(place, approvalId, scrollDown);
    unsettled.push(async () => {
      /** @type {Approval[]} */
      const withdrawn = await api.get("approvals?status=withdrawn&order=desc&limit=100", { signal }).catch(() => []);
      const approval = withdrawn.find((each) => each.approvalId === approvalId);
      // The next look at the conversation says what has become of it.
      if (approval === undefined) return shown.clear();
      replace(target, approvalCard(place, approval, undefined));
      settle(approval.status);
    });
    return target;
  }

  /** Shows what a kept run says until it ends, whoever answers its questions. @param {string} runId @param {string} traceId empty when it is not known */
  async function follow(runId, traceId) {
    const mine = new AbortController();
    following = mine;
    follows = true;
    shows(runId);
    const answer = new Answer(ask);
    const turn = turnView("Agent", answer.body, { isMine: false });
    log.append(turn);
    try {
      const ends = AbortSignal.any([signal, mine.signal]);
      for await (const part of runParts(api, { agentId, runId }, ends)) {
        answer.take(part);
        scrollDown();
      }
      const { usage, models } = answer;
      answer.body.append(answerFacts({ usage, models, traceId }));
      announce("The answer is complete.");
      answered();
    } catch (error) {
      if (!signal.aborted && !mine.signal.aborted) answer.fail(error);
    } finally {
      if (following === mine) follows = false;
      scrollDown();
    }
  }

  /** @param {string} words */
  async function tell(words) {
    const run = new AbortController();
    const answer = new Answer(ask);
    const turn = turnView("Agent", answer.body, { isMine: false });
    const trace = newTrace();
    running = run;
    following.abort();
    follows = false;
    let body;
    try {
      await ready;
      body = bodyFor(words, trace.id);
    } catch (error) {
      running = null;
      log.hidden = false;
      const alert = problem(error);
      unsettled.push(() => alert.remove());
      return log.append(alert);
    }
    const started = performance.now();
    text.value = "";
    log.hidden = false;
    shows(trace.id);
    if (body.options.memory?.conversationId !== undefined)
      history.replaceState(
        null,
        "",
        linkTo(address, { conversation: conversation.value.trim(), userId: user.value.trim() }),
      );
    log.append(turnView("User", element("p", { class: "said" }, words), { isMine: true }), turn);
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
      // It is no refusal when the service has taken it and failed.
      if (error instanceof Refusal && error.status < 500)
        unsettled.push(() => replace(answer.body, element("p", { class: "quiet" }, "Not sent.")));
    } finally {
      running = null;
      send.disabled = false;
      stop.disabled = true;
      log.removeAttribute("aria-busy");
      const { usage, models } = answer;
      answer.body.append(answerFacts({ usage, models, took: performance.now() - started, traceId: trace.id }));
      scrollDown();
    }
    isStored = true;
    if (answer.usage === undefined) failed = words;
    answered();
    if (answer.waits && (await isKept(trace.id))) {
      turn.remove();
      void follow(trace.id, trace.id);
    }
  }

  /** Whether a run goes on after an answer to its question: only a store that lasts keeps it. @param {string} runId */
  async function isKept(runId) {
    try {
      await api.get(`${address}/runs/${segment(runId)}`, { signal });
      return running === null;
    } catch {
      return false;
    }
  }

  /** @param {string} words @param {string} runId */
  function bodyFor(words, runId) {
    const conversationId = conversation.value.trim();
    const userId = user.value.trim();
    const given = context.read();
    const memory = { ...(userId !== "" && { userId }), ...(conversationId !== "" && { conversationId }) };
    const options = {
      runId,
      ...(temperature.value !== "" && { temperature: Number(temperature.value) }),
      ...(Object.keys(memory).length > 0 && { memory }),
      ...(given !== undefined && { context: given }),
    };
    return { input: conversationId === "" ? [...said, message("user", words)] : words, options };
  }

  /** @param {Answer} answer @param {string} words @param {import("./api.js").Options} options */
  async function read(answer, words, options) {
    /** @type {AsyncGenerator<{ data: RawStreamPart }>} */
    const events = api.events("POST", `${address}/stream`, options);
    let earlier = unsettled.length;
    try {
      for await (const { data } of events) {
        for (const settle of unsettled.splice(0, earlier)) void settle();
        earlier = 0;
        answer.take(data);
        scrollDown();
        if (data.type !== "finish") continue;
        for (const id of [data.userMessageId, data.messageId]) if (id !== undefined) shown.add(id);
        if (answer.usage !== undefined)
          announce(`The answer is complete: ${counted(answer.usage.totalTokens, "token")}.`);
      }
    } finally {
      // A message without an answer is taken back. With the next one, the model would take it for the question.
      if (answer.text !== "") said.push(message("user", words), message("assistant", answer.text));
    }
  }

  function scrollDown() {
    log.scrollTop = log.scrollHeight;
  }
  void keepAsking(place, PAUSE, () => ready.then(() => refresh()).catch(() => {}), element("div"));
  return element("div", { class: "chat" }, log, form);
}

/** The id of the message that a run stores. @param {string | undefined} runId */
const answerOf = (runId) => `msg_${runId}`;

/** Whether messages are those of one turn that began with these words. @param {string | null} words @param {readonly MessageList["messages"][number][]} messages */
const isTurnOf = (words, [question, answer, ...others]) =>
  question?.role === "user" &&
  question.parts?.some((part) => part.type === "text" && part.text === words) &&
  answer?.role !== "user" &&
  others.length === 0;

/** @param {"user" | "assistant"} role @param {string} text @returns {Message} */
const message = (role, text) => ({ role, parts: [{ type: "text", text }] });
