/** The traces of one execution: one for each time that it ran, from its start or a resume until it rested. */
import { segment } from "./api.js";
import { element } from "./elements.js";
import { timeText } from "./formats.js";
import { section } from "./parts.js";

/** @import { ExecutionState, TraceList } from "../../../../generated/types.ts" */
/** @import { Api } from "./api.js" */

/** As the spans of workflows name it. */
const EXECUTION_ID = "workflow.execution.id";
const OCCASION = "workflow.execution.occasion";
/** Traces are asked for in one page; those of one execution begin after it did. */
const PAGE = "200";

/**
 * Null where there are none to be shown: nothing is traced, or who asks may not see it.
 *
 * @param {Api} api
 * @param {ExecutionState} state
 * @param {AbortSignal} signal
 */
export async function executionTraces(api, { workflowId, executionId, startAt }, signal) {
  const query = new URLSearchParams({ entityType: "workflow", entityId: workflowId, from: startAt, limit: PAGE });
  try {
    /** @type {TraceList} */
    const { traces } = await api.get(`observability/traces?${query}`, { signal });
    const own = traces.filter(({ rootSpan }) => rootSpan.attributes[EXECUTION_ID] === executionId);
    if (own.length === 0) return null;
    const items = own.map(({ traceId, startTime, rootSpan }) => {
      const text = `${timeText(startTime)}, ${rootSpan.attributes[OCCASION] ?? "run"}`;
      return element("li", {}, element("a", { href: `#/traces/${segment(traceId)}` }, text));
    });
    return section("Traces", element("ul", { class: "events" }, ...items));
  } catch {
    return null;
  }
}
