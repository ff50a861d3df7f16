/** One question that a person is asked before a tool runs, and the answer to it. */
import { segment } from "./api.js";
import { element, replace } from "./elements.js";
import { whose } from "./execution-owner.js";
import { moment } from "./moments.js";
import { badge, field, problem } from "./parts.js";
import { linkTo } from "./router.js";
import { runLink } from "./run-facts.js";
import { valueFields } from "./value-form.js";
import { valueView } from "./value-view.js";

/** @import { Approval, Tool } from "../../../../generated/types.ts" */
/** @import { Child } from "./elements.js" */
/** @import { Place } from "./router.js" */

/**
 * Schemas of the inputs of tools. Whoever may answer a question may not see the list of tools: then the input is edited as JSON.
 *
 * @param {Pick<Place, "api" | "signal">} place
 * @returns {Promise<Map<string, unknown>>}
 */
export async function toolSchemas({ api, signal }) {
  try {
    /** @type {Tool[]} */
    const tools = await api.get("tools", { signal });
    return new Map(tools.map(({ name, parameters }) => [name, parameters]));
  } catch {
    return new Map();
  }
}

/** Who asked, as links. @param {Approval} approval @returns {Child[]} */
function askedBy({ agentId, runId, workflowId, executionId, stepId, conversationId, userId }) {
  /** @type {Child[][]} */
  const parts = [];
  if (agentId !== undefined)
    parts.push([
      "asked by agent ",
      element("a", { href: `#/agents/${segment(agentId)}` }, agentId),
      ...(runId === undefined ? [] : [", ", element("a", { href: runLink({ agentId, runId }) }, "its run")]),
    ]);
  if (workflowId !== undefined) {
    const execution = `workflows/${segment(workflowId)}/executions/${segment(executionId)}`;
    const href = executionId === undefined ? `#/workflows/${segment(workflowId)}` : linkTo(execution, whose(userId));
    parts.push([
      "asked by workflow ",
      element("a", { href }, workflowId),
      stepId === undefined ? "" : `, step ${stepId}`,
    ]);
  }
  if (parts.length === 0) parts.push(["asked by a request"]);
  if (conversationId !== undefined) {
    const path = `memory/${segment(agentId)}/${segment(conversationId)}`;
    const link = element("a", { href: linkTo(path, whose(userId)) }, conversationId);
    parts.push(["conversation ", agentId === undefined ? conversationId : link]);
  }
  if (userId !== undefined) parts.push([`user ${userId}`]);
  return parts.flatMap((part, index) => (index === 0 ? part : [", ", ...part]));
}

/** What the call runs with beside its input. @param {Approval} approval @returns {Child[]} */
function contextView({ context = {}, contextTruncated }) {
  if (Object.keys(context).length === 0) return [];
  return [
    element("h4", {}, contextTruncated ? "In this context, which is shown cut" : "In this context"),
    valueView(context),
  ];
}

/** @param {Approval} approval */
function decision({ status, decidedAt, decidedBy, reason, approvedInput, usedAt }) {
  return element(
    "div",
    {},
    element(
      "p",
      { class: "meta" },
      badge(status),
      decidedBy !== undefined && `by ${decidedBy}`,
      decidedAt !== undefined && moment("ago", decidedAt),
      status === "approved" && (usedAt === undefined ? "not run yet" : "has run"),
    ),
    reason !== undefined && reason !== "" && element("p", {}, `“${reason}”`),
    approvedInput !== undefined && element("h4", {}, "With this input"),
    approvedInput !== undefined && valueView(approvedInput),
  );
}

/**
 * @param {Pick<Place, "api" | "signal" | "announce">} place
 * @param {Approval} approval
 * @param {unknown} schema of the input, where it is known
 * @param {(answered: Approval) => void} [done]
 */
export function approvalCard(place, approval, schema, done) {
  const { approvalId, toolName, input, status, createdAt, expiresAt } = approval;
  const title = element("h3", { id: `approval-${approvalId}`, tabindex: -1 }, element("code", {}, toolName));
  const isOpen = status === "open";
  return element(
    "article",
    { class: "panel approval", "aria-labelledby": title.id },
    title,
    element(
      "p",
      { class: "meta" },
      element("span", {}, ...askedBy(approval)),
      isOpen
        ? element("span", {}, "waiting for ", moment("for", createdAt))
        : element("span", {}, "asked ", moment("ago", createdAt)),
      isOpen && element("span", {}, "expires ", moment("in", expiresAt)),
    ),
    valueView(input),
    ...contextView(approval),
    isOpen ? answerForm(place, approval, schema, done) : decision(approval),
  );
}

/**
 * @param {Pick<Place, "api" | "signal" | "announce">} place
 * @param {Approval} approval
 * @param {unknown} schema
 * @param {(answered: Approval) => void} [done]
 */
function answerForm({ api, signal, announce }, { approvalId, toolName, input }, schema, done) {
  const fields = valueFields(`input-${approvalId}`, "Input", schema ?? null, input);
  const edit = element("details", { class: "fold" }, element("summary", {}, "Change the input"), fields.body);
  const reason = element("input", { id: `reason-${approvalId}`, autocomplete: "off" });
  const failure = element("div");
  const approve = element("button", { type: "submit", "data-answer": "true" }, "Approve");
  const refuse = element(
    "button",
    { type: "button", class: "plain", "data-answer": "false", onclick: () => void answer(false) },
    "Refuse",
  );

  /** @param {boolean} approved */
  async function answer(approved) {
    replace(failure);
    try {
      const edited = approved && edit.open ? fields.read() : input;
      const differs = JSON.stringify(edited) !== JSON.stringify(input);
      const said = reason.value.trim();
      const body = { approved, ...(said !== "" && { reason: said }), ...(differs && { input: edited }) };
      approve.disabled = refuse.disabled = true;
      /** @type {Approval} */
      const answered = await api.post(`approvals/${segment(approvalId)}`, body, { signal });
      announce(`${toolName}: ${answered.status}`);
      replace(form, decision(answered));
      done?.(answered);
    } catch (error) {
      if (signal.aborted) return;
      replace(failure, problem(error));
      approve.disabled = refuse.disabled = false;
    }
  }

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    void answer(true);
  }

  const form = element(
    "form",
    { onsubmit: submit },
    edit,
    field("Reason", reason, "Whoever asked is told."),
    element("div", { class: "actions" }, approve, refuse),
    failure,
  );
  return form;
}
