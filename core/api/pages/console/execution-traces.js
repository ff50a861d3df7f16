/** The traces of one execution: one for each time that it ran, from its start or a resume until it rested. */
import { segment } from "./api.js";
import { element, replace } from "./elements.js";
import { dollarText, timeText } from "./formats.js";
import { section } from "./parts.js";

/** @import { ExecutionState, TraceDetail, TraceList, TraceSummary } from "../../../../generated/types.ts" */
/** @import { Api } from "./api.js" */

/** As the spans of workflows name it. */
const EXECUTION_ID = "workflow.execution.id";
const OCCASION = "workflow.execution.occasion";
const PAGE = "200";
/** Traces of which the calls of models are added up, the latest. */
const MOST_READ = 10;
/** A trace may begin before its execution does, with the request; in milliseconds. */
const BEFORE = 1000;

/**
 * Null where there are none to show: nothing is traced, or the user may not see it.
 *
 * @param {Api} api
 * @param {ExecutionState} state
 * @param {AbortSignal} signal
 */
export async function executionTraces(api, { workflowId, executionId, startAt }, signal) {
  const from = new Date(Date.parse(startAt) - BEFORE).toISOString();
  const query = new URLSearchParams({
    entityType: "workflow",
    entityId: workflowId,
    from,
    limit: PAGE,
    spans: "false",
  });
  try {
    /** @type {TraceList} */
    const { traces } = await api.get(`observability/traces?${query}`, { signal });
    const own = traces.filter(({ rootSpan }) => rootSpan.attributes[EXECUTION_ID] === executionId);
    if (own.length === 0) return null;
    const items = own.map(({ traceId, startTime, rootSpan }) => {
      const text = `${timeText(startTime)}, ${rootSpan.attributes[OCCASION] ?? "run"}`;
      return element("li", {}, element("a", { href: `#/traces/${segment(traceId)}` }, text));
    });
    const cost = element("p");
    void costOf(api, own.slice(0, MOST_READ), signal).then((dollars) => {
      if (dollars > 0)
        replace(
          cost,
          `Models cost ${dollarText(dollars)}${own.length > MOST_READ ? ` in the last ${MOST_READ}` : ""}.`,
        );
    });
    return section("Traces", element("ul", { class: "events" }, ...items), cost);
  } catch {
    return null;
  }
}

/** What the calls of models cost, as far as their prices are known. @param {Api} api @param {readonly TraceSummary[]} traces @param {AbortSignal} signal */
async function costOf(api, traces, signal) {
  /** @type {TraceDetail[]} */
  const details = await Promise.all(
    traces.map(({ traceId }) => api.get(`observability/traces/${segment(traceId)}`, { signal })),
  ).catch(() => []);
  const calls = details.flatMap(({ spans }) =>
    spans.filter((span) => span.attributes["gen_ai.operation.name"] === "chat"),
  );
  return calls.reduce((sum, { attributes }) => sum + Number(attributes["usage.cost"] ?? 0), 0);
}
