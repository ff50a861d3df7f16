/** Says why an execution waits, and has a form that answers: Approve and Refuse where it asks for that, else Resume. */
import { approvalCard, toolSchemas } from "./approval-card.js";
import { element, replace } from "./elements.js";
import { moment } from "./moments.js";
import { jsonDetails, load, problem, section } from "./parts.js";
import { valueFields } from "./value-form.js";
import { valueView } from "./value-view.js";
import { approvalIdOf, inboxLink, openApprovals } from "./waiting.js";
import { allSteps } from "./workflow-tree.js";

/** @import { ExecutionState } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */
/** @import { WorkflowTree } from "./workflow-tree.js" */

/** Names of a boolean that is an answer by itself. */
const ANSWER = /^(is)?(approv|accept|confirm|allow|agree|ok$|yes$)/i;

/**
 * The only boolean of a resume schema, if its name is that of an answer.
 *
 * @param {unknown} schema
 * @returns {{ name: string, rest: object } | null} with the schema of the other properties
 */
export function answerOf(schema) {
  const properties = /** @type {{ properties?: Record<string, { type?: unknown } | null> } | null} */ (schema)
    ?.properties;
  if (typeof properties !== "object" || properties === null) return null;
  const booleans = Object.entries(properties).filter(([, property]) => property?.type === "boolean");
  const [name] = booleans[0] ?? [];
  if (booleans.length !== 1 || name === undefined || !ANSWER.test(name)) return null;
  const { [name]: _answer, ...others } = properties;
  return { name, rest: { .../** @type {object} */ (schema), properties: others } };
}

/**
 * @param {Place} place
 * @param {Pick<ExecutionState, "suspension">} state
 * @param {WorkflowTree} tree
 * @param {(resumeData: unknown) => Promise<void>} resume
 */
export function suspensionPanel(place, { suspension }, tree, resume) {
  if (suspension === undefined) return null;
  const { stepId, reason, suspendedAt, suspendData } = suspension;
  const step = allSteps(tree).find(({ path }) => path === stepId);
  const approvalId = approvalIdOf(suspension);
  return section(
    "Waiting",
    element("p", { class: "lead" }, reason),
    element(
      "p",
      { class: "quiet" },
      "Waiting for ",
      moment("for", suspendedAt),
      stepId === undefined ? "" : `, at step ${step?.name ?? stepId}`,
    ),
    approvalId === null && handedOut(suspendData),
    approvalId === null ? resumeForm(step?.resumeSchema ?? null, resume) : question(place, approvalId),
  );
}

/**
 * What answers by itself, where the schema asks for no more than yes or no; else null.
 *
 * @param {unknown} schema
 * @param {boolean} approved
 */
export function answerAlone(schema, approved) {
  const answer = answerOf(schema);
  const { required = [] } = /** @type {{ required?: string[] }} */ (schema ?? {});
  return answer !== null && required.every((name) => name === answer.name) ? { [answer.name]: approved } : null;
}

/** @param {unknown} data */
const handedOut = (data) =>
  typeof data === "object" && data !== null && !Array.isArray(data)
    ? valueView(data)
    : jsonDetails("What the step hands out", data, true);

/**
 * The question of a tool, with a form to answer it.
 *
 * @param {Pick<Place, "api" | "signal" | "announce">} place
 * @param {string} approvalId
 * @param {() => void} [shown] is called when it is there
 */
export function question(place, approvalId, shown) {
  const { api, signal } = place;
  const target = element("div");
  const open = openApprovals(api, signal, (page) => page.some((approval) => approval.approvalId === approvalId));
  void load(place, target, Promise.all([open, toolSchemas(place)]), ([approvals, schemas]) => {
    const found = approvals.find((approval) => approval.approvalId === approvalId);
    return found === undefined
      ? element(
          "p",
          {},
          "It has been answered, or is ",
          element("a", { href: inboxLink(approvalId) }, "in the inbox"),
          ".",
        )
      : approvalCard(place, found, schemas.get(found.toolName));
  }).then(shown);
  return target;
}

/** @param {unknown} schema @param {(resumeData: unknown) => Promise<void>} resume */
function resumeForm(schema, resume) {
  const answer = answerOf(schema);
  const isAlone =
    answer !== null && Object.keys(/** @type {{ properties: object }} */ (answer.rest).properties).length === 0;
  const fields = isAlone
    ? null
    : valueFields("resume", answer === null ? "Resume with" : "Answer", answer?.rest ?? schema);
  const failure = element("div");

  /** @param {object} more */
  async function send(more) {
    replace(failure);
    try {
      const value = fields?.read();
      for (const control of buttons) control.disabled = true;
      await resume(answer === null ? value : { .../** @type {object | undefined} */ (value), ...more });
    } catch (error) {
      replace(failure, problem(error));
    } finally {
      for (const control of buttons) control.disabled = false;
    }
  }

  /** @param {string} label @param {boolean} value */
  const verdict = (label, value) =>
    element(
      "button",
      {
        type: value ? "submit" : "button",
        class: value ? undefined : "plain",
        "data-answer": String(value),
        onclick: (event) => {
          event.preventDefault();
          void send({ [answer?.name ?? ""]: value });
        },
      },
      label,
    );
  const buttons =
    answer === null
      ? [element("button", { type: "submit" }, "Resume")]
      : [verdict("Approve", true), verdict("Refuse", false)];
  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    void send({});
  }
  return element("form", { onsubmit: submit }, fields?.body, element("div", { class: "actions" }, ...buttons), failure);
}
