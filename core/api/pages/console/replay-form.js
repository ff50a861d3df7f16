/** Runs a past execution again from one of its steps. */
import { Refusal, segment } from "./api.js";
import { element, replace } from "./elements.js";
import { ownerQuery } from "./execution-owner.js";
import { field, problem } from "./parts.js";
import { jsonField } from "./value-form.js";
import { allSteps } from "./workflow-tree.js";

/** @import { ExecutionResult } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */
/** @import { WorkflowTree } from "./workflow-tree.js" */

/**
 * Runs it again, and goes to where that runs.
 *
 * @param {Place} place
 * @param {string} path of the execution
 * @param {object} body
 */
export async function replay({ api, params, query, signal }, path, body) {
  /** @type {string} */
  let executionId;
  try {
    const ended = /** @type {ExecutionResult} */ (
      await api.post(`${path}/replay${ownerQuery(query)}`, body, { signal })
    );
    ({ executionId } = ended);
  } catch (error) {
    // One that fails again has its own page, too.
    const failed = error instanceof Refusal ? error.headers.get("x-execution-id") : null;
    if (failed === null) throw error;
    executionId = failed;
  }
  location.hash = `#/workflows/${segment(params.id)}/executions/${segment(executionId)}${ownerQuery(query)}`;
}

/** @param {Place} place @param {string} path of the execution @param {WorkflowTree} tree */
export function replayForm(place, path, tree) {
  const { signal } = place;
  const options = allSteps(tree).map((step) => element("option", { value: step.path }, `${step.name} (${step.path})`));
  const from = element("select", { id: "replay-step" }, ...options);
  const input = jsonField("replay-input", "Its input (JSON)", undefined, "Empty: what it was given the first time.");
  const submit = element("button", { type: "submit" }, "Replay");
  const failure = element("div");

  /** @param {Event} event */
  async function send(event) {
    event.preventDefault();
    replace(failure);
    submit.disabled = true;
    try {
      await replay(place, path, { stepId: from.value, inputData: input.read() });
    } catch (error) {
      if (!signal.aborted) replace(failure, problem(error));
    } finally {
      submit.disabled = false;
    }
  }

  return element(
    "form",
    { onsubmit: send },
    element("p", { class: "quiet" }, "A new execution begins at that step; what came before it is taken over."),
    field("From step", from),
    input.body,
    element("div", { class: "actions" }, submit),
    failure,
  );
}
