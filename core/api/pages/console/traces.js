/** Traces of runs, newest first, as they come. */
import { segment } from "./api.js";
import { element, replace } from "./elements.js";
import { counted, durationText, shortened } from "./formats.js";
import { filterForm, pageOf, pager } from "./listing.js";
import { changes, keepAsking } from "./live.js";
import { moment } from "./moments.js";
import { badge, table } from "./parts.js";
import { inputOf, tokensOf } from "./span-facts.js";

/** @import { TraceList, TraceSummary } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

const PAGE = 25;
/** Between two requests, in milliseconds. */
const PAUSE = 5000;
/** Characters of an input that a row shows. */
const LONGEST = 60;
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
        { name: "traceId", label: "Trace id", value: "" },
      ],
      moments,
    ),
    failure,
    list,
  );
  const filters = Object.fromEntries([...query].filter(([name]) => name !== "page"));
  const asked = new URLSearchParams({ ...filters, limit: String(PAGE + 1), offset: String(page * PAGE) });
  const differs = changes();
  const ask = async () => {
    /** @type {TraceList} */
    const { traces: found } = await api.get(`observability/traces?${asked}`, { signal });
    if (signal.aborted || !differs(found)) return;
    const focused = document.activeElement?.id ?? "";
    const heads = ["Trace", "Status", "Input", "User", "Tokens", "Began", "Took", "Spans"];
    replace(
      list,
      found.length === 0
        ? element("p", { class: "quiet" }, "No traces.")
        : table("Traces", heads, found.slice(0, PAGE).map(row)),
      pager("traces", filters, page, found.length > PAGE),
    );
    if (focused !== "" && document.activeElement === document.body) document.getElementById(focused)?.focus();
  };
  void keepAsking(place, PAUSE, ask, failure).then(() => replace(list));
}

/** @param {readonly string[]} values @param {string} all @returns {(readonly [string, string])[]} */
const choices = (values, all) => values.map((value) => [value, value || all]);

/** @param {TraceSummary} trace */
function row({ traceId, rootSpan, spanCount, startTime, status, userId }) {
  const input = inputOf(rootSpan);
  const tokens = tokensOf(rootSpan);
  return [
    element("a", { href: `#/traces/${segment(traceId)}`, id: `row-${traceId}` }, rootSpan.name),
    badge(status),
    element(
      "span",
      { class: "clip", title: shortened(input, 1000) },
      shortened(input.replaceAll(/\s+/g, " "), LONGEST),
    ),
    userId ?? "",
    tokens === null ? "" : tokens.total,
    moment("ago", startTime),
    rootSpan.duration === undefined ? "runs" : durationText(rootSpan.duration),
    counted(spanCount, "span"),
  ];
}
