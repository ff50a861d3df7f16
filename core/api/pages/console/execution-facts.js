/** The facts about an execution as a whole: status, times, user, result. */
import { segment } from "./api.js";
import { element } from "./elements.js";
import { whose } from "./execution-owner.js";
import { spanText, timeText } from "./formats.js";
import { badge, facts, jsonBlock, section } from "./parts.js";
import { linkTo } from "./router.js";

/** @import { ExecutionState } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

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
 * @param {ExecutionState} state
 * @param {unknown} result
 */
export function outcomeOf({ status, error, cancellation }, result) {
  if (error !== undefined) {
    const where = error.stepId === undefined ? null : element("p", {}, "Step ", element("code", {}, error.stepId));
    return section("Error", element("p", { class: "problem" }, error.message), where);
  }
  if (cancellation !== undefined) {
    const text = `${timeText(cancellation.cancelledAt)}${cancellation.reason === undefined ? "" : `: ${cancellation.reason}`}`;
    return section("Cancelled", element("p", {}, text));
  }
  return status === "completed" && result !== undefined && section("Result", jsonBlock(result));
}
