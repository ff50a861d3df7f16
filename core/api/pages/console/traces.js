/** Traces of runs, newest first, as they come. */
import { segment } from "./api.js";
import { element } from "./elements.js";
import { counted, durationText } from "./formats.js";
import { filterForm, fromOf, pageOf, rangeFilter } from "./listing.js";
import { liveList, PAGE } from "./live-list.js";
import { moment } from "./moments.js";
import { badge, clipped } from "./parts.js";
import { inputOf, nameOf, tokensOf } from "./span-facts.js";

/** @import { TraceSummary } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** Between two requests, in milliseconds. */
const PAUSE = 5000;
const TYPES = ["", "agent", "workflow", "tool"];
const STATUSES = ["", "running", "completed", "error"];
/** Filters that links from other views set. */
const MOMENTS = ["from", "to"];

/** @param {Place} place */
export function tracesView(place) {
  const { api, signal, query, body } = place;
  const traceId = (query.get("traceId") ?? "").trim();
  if (traceId !== "") return location.replace(`#/traces/${segment(traceId)}`);
  const page = pageOf(query);
  const given = (/** @type {string} */ name) => query.get(name) ?? "";
  const list = element("div", {}, element("p", { class: "quiet" }, "Loading…"));
  const failure = element("div");
  const moments = Object.fromEntries(MOMENTS.map((name) => [name, given(name)]));
  body.append(
    filterForm(
      "traces",
      [
        { name: "entityType", label: "Of", value: given("entityType"), options: choices(TYPES, "everything") },
        { name: "entityId", label: "Id", value: given("entityId") },
        { name: "status", label: "Status", value: given("status"), options: choices(STATUSES, "all") },
        rangeFilter(query),
        { name: "traceId", label: "Trace id", value: "" },
      ],
      moments,
    ),
    failure,
    list,
  );
  const filters = Object.fromEntries([...query].filter(([name]) => name !== "page"));
  /** @returns {Promise<readonly TraceSummary[]>} */
  const find = async () => {
    const { since: _since, ...others } = filters;
    const from = fromOf(query);
    const asked = {
      ...others,
      ...(from !== "" && { from }),
      limit: String(PAGE + 1),
      offset: String(page * PAGE),
      spans: "false",
    };
    return (await api.get(`observability/traces?${new URLSearchParams(asked)}`, { signal })).traces;
  };
  const heads = ["Trace", "Status", "Input", "User", "Tokens", "Began", "Took", "Spans"];
  liveList(place, { title: "Traces", heads, page, find, row, list, failure, pause: PAUSE });
}

/** @param {readonly string[]} values @param {string} all @returns {(readonly [string, string])[]} */
const choices = (values, all) => values.map((value) => [value, value || all]);

/** @param {TraceSummary} trace */
function row({ traceId, rootSpan, spanCount, startTime, status, userId }) {
  const tokens = tokensOf(rootSpan);
  return [
    element("a", { href: `#/traces/${segment(traceId)}`, id: `row-${traceId}` }, nameOf(rootSpan)),
    badge(status),
    clipped(inputOf(rootSpan)),
    userId ?? "",
    tokens === null ? "" : tokens.total,
    moment("ago", startTime),
    rootSpan.duration === undefined ? "runs" : durationText(rootSpan.duration),
    counted(spanCount, "span"),
  ];
}
