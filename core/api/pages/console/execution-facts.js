/** The facts about an execution as a whole: status, times, user, result. */
import { segment } from "./api.js";
import { element, replace } from "./elements.js";
import { whose } from "./execution-owner.js";
import { spanText, timeText } from "./formats.js";
import { badge, facts, jsonBlock, section } from "./parts.js";
import { linkTo } from "./router.js";
import { allSteps } from "./workflow-tree.js";

/** @import { ExecutionState } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */
/** @import { WorkflowTree } from "./workflow-tree.js" */

/** Of the log, beside an error. */
const LINES = "20";

/** @param {Place} place @param {ExecutionState} state */
export function factsOf({ params }, state) {
  const workflow = `#/workflows/${segment(params.id)}`;
  const { replayedFromExecutionId: source, replayFromStepId: from } = state;
  return facts([
    ["Status", badge(state.status)],
    ["Workflow", element("a", { href: workflow }, state.workflowId)],
    ["Id", element("code", {}, state.executionId)],
    ["Began", timeText(state.startAt)],
    ["Took", state.endAt !== undefined && spanText(state.startAt, state.endAt)],
    [
      "Log",
      element("a", { href: linkTo("logs", { level: "trace", executionId: state.executionId }) }, "of this execution"),
    ],
    ["User", state.userId],
    ["Conversation", state.conversationId],
    [
      "Replay of",
      source !== undefined &&
        element(
          "a",
          { href: linkTo(`workflows/${segment(params.id)}/executions/${segment(source)}`, whose(state.userId)) },
          `${source}, from ${from}`,
        ),
    ],
  ]);
}

/**
 * @param {Place} place
 * @param {ExecutionState} state
 * @param {WorkflowTree} tree
 * @param {unknown} result
 */
export function outcomeOf(place, { status, executionId, error, cancellation }, tree, result) {
  if (error !== undefined) {
    const step = allSteps(tree).find(({ path }) => path === error.stepId);
    return section(
      "Error",
      error.stepId !== undefined && element("p", {}, `Failed at step ${step?.name ?? error.stepId}`),
      element("p", { class: "problem" }, error.message),
      logOf(place, executionId),
    );
  }
  if (cancellation !== undefined) {
    const text = `${timeText(cancellation.cancelledAt)}${cancellation.reason === undefined ? "" : `: ${cancellation.reason}`}`;
    return section("Cancelled", element("p", {}, text));
  }
  return status === "completed" && result !== undefined && section("Result", jsonBlock(result));
}

/** What the log says of it, as far as it may be read. @param {Place} place @param {string} executionId */
function logOf({ api, signal }, executionId) {
  const lines = element("ul", { class: "events" });
  const query = new URLSearchParams({ executionId, limit: LINES });
  /** @type {Promise<{ timestamp: string, level: string, msg: string }[]>} */
  const asked = api.get(`api/logs?${query}`, { signal });
  asked
    .then((found) =>
      replace(
        lines,
        ...found.map(({ timestamp, level, msg }) =>
          element("li", {}, element("time", { datetime: timestamp }, timeText(timestamp)), ` ${level} `, msg),
        ),
      ),
    )
    .catch(() => {});
  return lines;
}
