/** One answer of an agent, as its parts come: text, reasoning, calls of tools, what sub-agents say, errors. */
import { element, replace } from "./elements.js";
import { jsonBlock, problem } from "./parts.js";

/** @import { RawStreamPart } from "../../../../generated/types.ts" */
/** @typedef {{ fold: HTMLElement, state: HTMLElement, body: HTMLElement }} ToolCall */

export class Answer {
  /** The element on the page. */
  body = element("div", { class: "answer" });
  /** Text of the agent itself, for the next turn. */
  text = "";
  /** Blocks that still grow, by agent and id: the ids of each sub-agent begin again with the first. @type {Map<string, Text>} */
  #growing = new Map();
  /** @type {Map<string, ToolCall>} */
  #calls = new Map();

  /** @param {RawStreamPart} part */
  take(part) {
    const from = part.subAgentName ?? part.subAgentId ?? "";
    switch (part.type) {
      case "text-start":
        return this.#begin(part, this.#said(from));
      case "text-delta":
        if (from === "") this.text += part.delta;
        return this.#growing.get(keyOf(part))?.appendData(part.delta);
      case "reasoning-start":
        return this.#begin(part, this.#thought(from));
      case "reasoning-delta":
        return this.#growing.get(keyOf(part))?.appendData(part.delta);
      case "tool-call":
        return this.#call(part.toolCallId, part.toolName, part.input, from);
      case "tool-result":
        return this.#returned(part.toolCallId, "done", jsonBlock(part.output));
      case "tool-error":
        return this.#returned(part.toolCallId, "failed", problem(part.error));
      case "error":
        return this.fail(part.error);
      default:
    }
  }

  /** @param {unknown} error */
  fail(error) {
    this.body.append(problem(error));
  }

  /** @param {string} text */
  note(text) {
    this.body.append(element("p", { class: "quiet" }, text));
  }

  /** @param {{ type: string, id: string, subAgentId?: string }} part @param {HTMLElement} block */
  #begin(part, block) {
    const text = document.createTextNode("");
    block.append(text);
    this.#growing.set(keyOf(part), text);
  }

  /** @param {string} from */
  #said(from) {
    const block = element("p", { class: "said" });
    this.body.append(from === "" ? block : element("div", { class: "delegate" }, element("h4", {}, from), block));
    return block;
  }

  /** @param {string} from */
  #thought(from) {
    const block = element("p", { class: "said" });
    const title = from === "" ? "Reasoning" : `Reasoning of ${from}`;
    this.body.append(element("details", { class: "fold" }, element("summary", {}, title), block));
    return block;
  }

  /** @param {string} id @param {string} name @param {unknown} input @param {string} from */
  #call(id, name, input, from) {
    const state = element("span", { class: "quiet" }, "running…");
    const body = element("div");
    const summary = element(
      "summary",
      {},
      "Tool ",
      element("code", {}, name),
      from === "" ? "" : ` of ${from}`,
      " ",
      state,
    );
    const fold = element("details", { class: "fold" }, summary, element("h4", {}, "Input"), jsonBlock(input), body);
    this.#calls.set(id, { fold, state, body });
    this.body.append(fold);
  }

  /** @param {string} id @param {string} state @param {HTMLElement} result */
  #returned(id, state, result) {
    const call = this.#calls.get(id);
    if (call === undefined) return;
    replace(call.state, state);
    replace(call.body, element("h4", {}, "Result"), result);
    if (state === "failed") call.fold.setAttribute("open", "");
  }
}

/** @param {{ type: string, id: string, subAgentId?: string }} part */
const keyOf = ({ type, id, subAgentId = "" }) => `${type.split("-", 1)[0]} ${subAgentId} ${id}`;
