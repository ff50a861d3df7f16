/** One trace: its spans as a waterfall, and the details of the chosen span. */
import { segment } from "./api.js";
import { element, replace } from "./elements.js";
import { counted, durationText, timeText } from "./formats.js";
import { facts, load, section } from "./parts.js";
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
      ]),
      element("div", { class: "beside" }, section("Waterfall", buildWaterfall(tree, choose)), panel),
    ];
  });
}
