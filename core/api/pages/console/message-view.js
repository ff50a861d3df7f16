/** Messages as they are stored: texts, reasoning, and calls of tools with what came of them. */
import { element } from "./elements.js";
import { markdown } from "./markdown-flow.js";
import { moment } from "./moments.js";
import { jsonBlock, jsonDetails, resultBlock } from "./parts.js";
import { inboxLink } from "./waiting.js";

/** @import { Message } from "../../../../generated/types.ts" */
/** @import { Child } from "./elements.js" */
/** @typedef {{ type: string, text?: string, state?: string, toolName?: string, input?: unknown, output?: unknown, errorText?: string, approval?: { id: string } }} Part */

/** @type {Record<string, string>} */
const SPEAKERS = { user: "User", assistant: "Agent", system: "System", tool: "Tool" };

/** How calls of tools stand, in the words of the chat. @type {Record<string, string>} */
const STATES = {
  "input-available": "running…",
  "output-available": "done",
  "output-error": "failed",
  "output-denied": "refused",
  "approval-requested": "waits for a person",
  "approval-responded": "answered",
};

/** @param {Part} part @param {boolean} isMine @returns {Child} */
function partView(part, isMine) {
  const { type, text = "", state, input, output, errorText, approval } = part;
  if (type === "text") return isMine ? element("p", { class: "said" }, text) : markdown(text);
  if (type === "reasoning")
    return element(
      "details",
      { class: "fold" },
      element("summary", {}, "Reasoning"),
      element("p", { class: "said" }, text),
    );
  if (type !== "dynamic-tool" && !type.startsWith("tool-"))
    return type === "step-start" ? null : jsonDetails(type, part);
  const name = part.toolName ?? type.slice("tool-".length);
  return element(
    "details",
    { class: "fold" },
    element(
      "summary",
      {},
      "Tool ",
      element("code", {}, name),
      " ",
      element("span", { class: "quiet" }, STATES[state ?? ""] ?? state ?? ""),
    ),
    state === "approval-requested" &&
      element(
        "p",
        {},
        element("a", { href: approval === undefined ? "#/inbox" : inboxLink(approval.id) }, "It waits for a person"),
      ),
    element("h4", {}, "Input"),
    jsonBlock(input),
    output !== undefined && element("h4", {}, "Result"),
    output !== undefined && resultBlock(output),
    errorText !== undefined && element("p", { class: "problem" }, errorText),
  );
}

/** Text of a message, to say it again or to show its beginning. @param {Message} message */
export function messageText({ parts, content }) {
  if (parts === undefined) return typeof content === "string" ? content : "";
  return parts.map((part) => (part.type === "text" && "text" in part ? String(part.text) : "")).join("");
}

/** @param {Message} message */
export function messageView(message) {
  const { role, parts, content, createdAt } = message;
  const isMine = role === "user";
  const given = /** @type {Part[]} */ (
    parts ?? (typeof content === "string" ? [{ type: "text", text: content }] : (content ?? []))
  );
  return turnView(
    SPEAKERS[role] ?? role,
    element("div", { class: "answer" }, ...given.map((part) => partView(part, isMine))),
    { isMine, when: moment("ago", createdAt) },
  );
}

/** @param {string} who @param {HTMLElement} what @param {{ isMine: boolean, when?: Child }} how */
export const turnView = (who, what, { isMine, when }) =>
  element("div", { class: `turn ${isMine ? "is-mine" : ""}` }, element("h3", {}, who, when && " ", when), what);
