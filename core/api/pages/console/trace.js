/** One trace: its spans as a waterfall, and the details of the chosen span. */
import { segment } from "./api.js";
import { element, replace } from "./elements.js";
import { counted, durationText, timeText } from "./formats.js";
import { facts, load, section } from "./parts.js";
import { linkTo } from "./router.js";
import { tokensOf } from "./span-facts.js";
import { spanPanel } from "./span-panel.js";
import { buildWaterfall } from "./waterfall.js";

/** @import { SpanRecord, TraceDetail } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** @param {Place} place */
export function traceView(place) {
  const { api, params, signal, body, title } = place;
  /** @type {Promise<TraceDetail>} */
  const asked = api.get(`observability/traces/${segment(params.id)}`, { signal });
  return load(place, body, asked, ({ traceId, spans, tree, spanCount }) => {
    const [first] = spans;
    const tokens = first === undefined ? null : tokensOf(first);
    const panel = element("div", { class: "span-panel" });
    /** @param {SpanRecord} span */
    const choose = (span) => replace(panel, spanPanel(place, span));
    if (first !== undefined) {
      title(first.name);
      choose(first);
    }
    return [
      facts([
        ["Trace", element("code", {}, traceId)],
        ["Began", timeText(first?.startTime)],
        ["Took", first?.duration !== undefined && durationText(first.duration)],
        ["Spans", counted(spanCount, "span")],
        ["Tokens", tokens !== null && `${tokens.total} (${tokens.read} read, ${tokens.written} written)`],
        ["Conversation", conversationLink(spans)],
        ["Execution", executionLink(spans)],
        ["Log", element("a", { href: linkTo("logs", { level: "trace", search: traceId }) }, "of this trace")],
      ]),
      element("div", { class: "beside" }, section("Waterfall", buildWaterfall(tree, choose)), panel),
    ];
  });
}

/** The value of an attribute in the first span that has it. @param {readonly SpanRecord[]} spans @param {string} name */
const find = (spans, name) => spans.find(({ attributes }) => attributes[name] !== undefined);

/** @param {readonly SpanRecord[]} spans */
function conversationLink(spans) {
  const span = find(spans, "gen_ai.conversation.id");
  if (span === undefined) return null;
  const id = String(span.attributes["gen_ai.conversation.id"]);
  const agent = String(span.attributes["gen_ai.agent.id"] ?? span.attributes["entity.id"]);
  return element("a", { href: `#/memory/${segment(agent)}/${segment(id)}` }, id);
}

/** @param {readonly SpanRecord[]} spans */
function executionLink(spans) {
  const span = find(spans, "workflow.execution.id");
  if (span === undefined) return null;
  const id = String(span.attributes["workflow.execution.id"]);
  const workflow = String(span.attributes["entity.id"]);
  return element("a", { href: `#/workflows/${segment(workflow)}/executions/${segment(id)}` }, id);
}
