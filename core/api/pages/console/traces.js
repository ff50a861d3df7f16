/** Traces of runs, newest first. */
import { segment } from "./api.js";
import { element } from "./elements.js";
import { counted, durationText, timeText } from "./formats.js";
import { filterForm, pageOf, pager } from "./listing.js";
import { badge, load, table } from "./parts.js";

/** @import { TraceList, TraceSummary } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

const PAGE = 25;
const TYPES = ["", "agent", "workflow", "tool"];
const STATUSES = ["", "running", "completed", "error"];
/** Filters that links from other views set. */
const MOMENTS = ["from", "to"];

/** @param {Place} place */
export async function tracesView(place) {
  const { api, signal, query, body } = place;
  const page = pageOf(query);
  const given = (/** @type {string} */ name) => query.get(name) ?? "";
  const list = element("div");
  const moments = Object.fromEntries(MOMENTS.map((name) => [name, given(name)]));
  body.append(
    filterForm(
      "traces",
      [
        { name: "entityType", label: "Of", value: given("entityType"), options: choices(TYPES, "everything") },
        { name: "entityId", label: "Id", value: given("entityId") },
        { name: "status", label: "Status", value: given("status"), options: choices(STATUSES, "all") },
      ],
      moments,
    ),
    list,
  );
  const filters = Object.fromEntries([...query].filter(([name]) => name !== "page"));
  const asked = new URLSearchParams({ ...filters, limit: String(PAGE + 1), offset: String(page * PAGE) });
  /** @type {Promise<TraceList>} */
  const traces = api.get(`observability/traces?${asked}`, { signal });
  await load(place, list, traces, ({ traces: found }) => [
    found.length === 0
      ? element("p", { class: "quiet" }, "No traces.")
      : table("Traces", ["Trace", "Status", "Began", "Took", "Spans", "Id"], found.slice(0, PAGE).map(row)),
    pager("traces", filters, page, found.length > PAGE),
  ]);
}

/** @param {readonly string[]} values @param {string} all @returns {(readonly [string, string])[]} */
const choices = (values, all) => values.map((value) => [value, value || all]);

/** @param {TraceSummary} trace */
function row({ traceId, rootSpan, spanCount, startTime, status }) {
  return [
    element("a", { href: `#/traces/${segment(traceId)}` }, rootSpan.name),
    badge(status),
    timeText(startTime),
    rootSpan.duration === undefined ? "" : durationText(rootSpan.duration),
    counted(spanCount, "span"),
    element("code", {}, traceId),
  ];
}
