/** Says why an execution waits, and has a form that resumes it. */
import { element, replace } from "./elements.js";
import { timeText } from "./formats.js";
import { jsonDetails, problem, section } from "./parts.js";
import { valueFields } from "./value-form.js";
import { allSteps } from "./workflow-tree.js";

/** @import { ExecutionState } from "../../../../generated/types.ts" */
/** @import { WorkflowTree } from "./workflow-tree.js" */

/**
 * @param {ExecutionState} state
 * @param {WorkflowTree} tree
 * @param {(resumeData: unknown) => Promise<void>} resume
 */
export function suspensionPanel({ suspension }, tree, resume) {
  if (suspension === undefined) return null;
  const { stepId, reason, suspendedAt, suspendData } = suspension;
  const step = allSteps(tree).find(({ path }) => path === stepId);
  const fields = valueFields("resume", "Resume with", step?.resumeSchema ?? null);
  const failure = element("div");
  const submit = element("button", { type: "submit" }, "Resume");

  /** @param {Event} event */
  async function send(event) {
    event.preventDefault();
    replace(failure);
    try {
      const value = fields.read();
      submit.disabled = true;
      await resume(value);
    } catch (error) {
      replace(failure, problem(error));
    } finally {
      submit.disabled = false;
    }
  }

  return section(
    "Waiting",
    element("p", { class: "lead" }, reason),
    element(
      "p",
      { class: "quiet" },
      `Since ${timeText(suspendedAt)}`,
      stepId === undefined ? "" : `, at step ${step?.name ?? stepId}`,
    ),
    jsonDetails("What the step hands out", suspendData, true),
    element("form", { onsubmit: send }, fields.body, element("div", { class: "actions" }, submit), failure),
  );
}
