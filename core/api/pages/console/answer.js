/** One answer of an agent, as its parts come: text, reasoning, calls of tools, what sub-agents say, errors. */
import { element, plain, replace } from "./elements.js";
import { MarkdownFlow } from "./markdown-flow.js";
import { jsonBlock, problem, resultBlock } from "./parts.js";

/** @import { RawStreamPart, Usage } from "../../../../generated/types.ts" */
/** @typedef {{ fold: HTMLElement, state: HTMLElement, body: HTMLElement, question?: HTMLElement }} ToolCall */

export class Answer {
  /** The element on the page. */
  body = element("div", { class: "answer" });
  /** Text of the agent itself, for the next turn. */
  text = "";
  /** Of the whole run, once it is known. @type {Usage | undefined} */
  usage;
  /** Whether a tool waits for a person. */
  waits = false;
  /** That answered, of the agent itself. @type {Set<string>} */
  models = new Set();
  /** Blocks that still grow, by agent and id: the ids of each sub-agent begin again with the first. @type {Map<string, { append(delta: string): void, end(): void }>} */
  #growing = new Map();
  /** @type {Map<string, ToolCall>} */
  #calls = new Map();
  /** What was there when the present step of the agent itself began. */
  #before = { elements: 0, text: "" };

  #ask;

  /** @param {(approvalId: string, settle: (status: string) => void) => HTMLElement} ask makes the question of a tool that waits */
  constructor(ask) {
    this.#ask = ask;
  }

  /** @param {RawStreamPart} part */
  take(part) {
    const from = part.subAgentName ?? part.subAgentId ?? "";
    switch (part.type) {
      case "start-step":
        if (from === "") this.#before = { elements: this.body.childElementCount, text: this.text };
        return;
      case "step-restart":
        if (from === "") this.#restart();
        return;
      case "text-start":
        this.#growing.set(keyOf(part), this.#said(from));
        return;
      case "text-delta":
        if (from === "") this.text += part.delta;
        return this.#growing.get(keyOf(part))?.append(part.delta);
      case "reasoning-start":
        this.#growing.set(keyOf(part), this.#thought(from));
        return;
      case "reasoning-delta":
        return this.#growing.get(keyOf(part))?.append(part.delta);
      case "text-end":
      case "reasoning-end":
        return this.#growing.get(keyOf(part))?.end();
      case "finish-step":
        if (from === "" && typeof part.model === "string") this.models.add(part.model);
        return;
      case "finish":
        if (from === "") this.usage = part.totalUsage;
        return;
      case "tool-approval-request":
        return this.#asks(part.toolCallId, part.approvalId);
      case "tool-call":
        return this.#call(part.toolCallId, part.toolName, part.input, from);
      case "tool-result":
        return this.#returned(part.toolCallId, "done", resultBlock(part.output));
      case "tool-error":
        return this.#returned(part.toolCallId, "failed", problem(part.error));
      case "error":
        return this.fail(part.error);
      default:
    }
  }

  /** The step begins again, in another process: what it had said is void. */
  #restart() {
    while (this.body.childElementCount > this.#before.elements) this.body.lastElementChild?.remove();
    this.text = this.#before.text;
  }

  /** @param {unknown} error */
  fail(error) {
    this.body.append(problem(error));
  }

  /** @param {string} text */
  note(text) {
    this.body.append(element("p", { class: "quiet" }, text));
  }

  /** @param {string} id of the call @param {string} approvalId */
  #asks(id, approvalId) {
    this.waits = true;
    const call = this.#calls.get(id);
    const question = this.#ask(approvalId, (status) => call && replace(call.state, status));
    if (call !== undefined) {
      replace(call.state, "waits for a person");
      call.question = question;
    }
    this.body.append(question);
  }

  /** @param {string} from */
  #said(from) {
    const flow = new MarkdownFlow();
    this.body.append(
      from === "" ? flow.body : element("div", { class: "delegate" }, element("h4", {}, from), flow.body),
    );
    return flow;
  }

  /** @param {string} from */
  #thought(from) {
    const block = element("p", { class: "said" });
    const title = from === "" ? "Reasoning" : `Reasoning of ${from}`;
    this.body.append(element("details", { class: "fold" }, element("summary", {}, title), block));
    const text = document.createTextNode("");
    block.append(text);
    return { append: (/** @type {string} */ delta) => text.appendData(plain(delta)), end() {} };
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
    // Somebody has answered, here or elsewhere.
    call.question?.remove();
    this.waits = false;
    replace(call.state, state);
    replace(call.body, element("h4", {}, "Result"), result);
    if (state === "failed") call.fold.setAttribute("open", "");
  }
}

/** @param {{ type: string, id: string, subAgentId?: string }} part */
const keyOf = ({ type, id, subAgentId = "" }) => `${type.split("-", 1)[0]} ${subAgentId} ${id}`;
