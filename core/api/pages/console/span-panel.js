/** The details of one span. */
import { segment } from "./api.js";
import { element, replace } from "./elements.js";
import { durationText, timeText } from "./formats.js";
import { badge, facts, jsonBlock, jsonDetails, problem, section } from "./parts.js";
import { parsedJson } from "./span-facts.js";

/** @import { SpanRecord } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** JSON of fewer characters stays on its line. */
const SHORT = 40;
const KINDS = ["internal", "server", "client"];

/** @param {SpanRecord} span */
function statusOf({ status, endTime }) {
  if (status.code === 2) return "error";
  return endTime === undefined ? "running" : "completed";
}

/** @param {unknown} value */
function attributeView(value) {
  const parsed = parsedJson(value);
  if (parsed !== undefined && JSON.stringify(parsed).length > SHORT) return jsonBlock(parsed);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** @param {Place} place @param {SpanRecord} span */
export function spanPanel(place, span) {
  const { name, spanId, kind, startTime, duration, status, attributes, events, links } = span;
  const rows = Object.entries(attributes).map(([key, value]) =>
    element("div", {}, element("dt", {}, key), element("dd", {}, attributeView(value))),
  );
  return section(
    "Span",
    element("h3", {}, name),
    facts([
      ["Status", badge(statusOf(span))],
      ["Kind", KINDS[kind]],
      ["Began", timeText(startTime)],
      ["Took", duration === undefined ? "running" : durationText(duration)],
      ["Id", element("code", {}, spanId)],
    ]),
    status.message !== undefined && element("p", { class: "problem" }, status.message),
    element("h3", {}, "Attributes"),
    element("dl", { class: "attributes" }, ...rows),
    events.length > 0 && jsonDetails("Events", events),
    ...links.map(({ traceId }) =>
      element("p", {}, element("a", { href: `#/traces/${segment(traceId)}` }, `Goes on from ${traceId}`)),
    ),
    logLines(place, spanId),
  );
}

/** The log of the span, which is requested when it is opened. @param {Place} place @param {string} spanId */
function logLines({ api, signal }, spanId) {
  const lines = element("div");
  let asked = false;

  async function ask() {
    if (asked) return;
    asked = true;
    try {
      const { logs } = await /** @type {Promise<{ logs: unknown[] }>} */ (
        api.get(`observability/spans/${segment(spanId)}/logs`, { signal })
      );
      replace(
        lines,
        logs.length === 0 ? element("p", { class: "quiet" }, "No lines.") : jsonDetails("Lines", logs, true),
      );
    } catch (error) {
      if (!signal.aborted) replace(lines, problem(error));
    }
  }

  return element("details", { class: "fold", ontoggle: ask }, element("summary", {}, "Log lines"), lines);
}
