/** The first view: what waits for a person, what failed, what was done in the last hour, and ways in. */
import { barChart, byMinute, numberText } from "./activity-chart.js";
import { segment } from "./api.js";
import { element, replace } from "./elements.js";
import { whose } from "./execution-owner.js";
import { counted, dollarText, shortened } from "./formats.js";
import { changes, keepAsking, pauseFor } from "./live.js";
import { moment } from "./moments.js";
import { badge, section } from "./parts.js";
import { linkTo } from "./router.js";
import { CIRCUIT, samplesOf } from "./samples.js";
import { nameOf } from "./span-facts.js";
import { inboxLink, someWaiting } from "./waiting.js";
import { waysIn } from "./ways-in.js";

/** @import { ObservabilityStatus, TraceList, WorkflowExecution } from "../../../../generated/types.ts" */
/** @import { Child } from "./elements.js" */
/** @import { Place } from "./router.js" */

/** Between two requests, in milliseconds. */
const PAUSE = 5000;
/** The same for `/metrics`, which is larger than the whole first view: it comes after that. */
const LONG_PAUSE = 15_000;
const MOST = 8;
const DAY = 86_400_000;
const EXECUTION_ID = "workflow.execution.id";
/** What is no failure: a call that a person must approve first, or that somebody else was faster with, and what was stopped. */
const EXPECTED = new Set(["conflict", "cancelled"]);
const LONGEST_MESSAGE = 160;

/** @typedef {{ status: string, at: string, link: HTMLElement, text: string }} Item */

/** @param {Place} place */
export function overviewView(place) {
  const { body, title, serviceName } = place;
  title(serviceName);
  body.append(
    element(
      "div",
      { class: "halves" },
      liveSection(place, "Waits for a person", waiting, waits),
      liveSection(place, "Failed in the last day", failedItems, (items) => list(items, "ago", "Nothing failed.")),
    ),
    unavailable(place),
    liveSection(place, "The last hour", lastHour, activity),
  );
  void waysIn(place);
}

/**
 * @template T
 * @param {Place} place
 * @param {string} name
 * @param {(place: Place) => Promise<T>} read
 * @param {(value: T) => Child[]} show
 */
function liveSection(place, name, read, show) {
  const content = element("div", {}, element("p", { class: "quiet" }, "Loading…"));
  const failure = element("div");
  const differs = changes();
  const ask = async () => {
    const value = await read(place);
    if (!place.signal.aborted && differs(value)) replace(content, ...show(value));
  };
  const asking = keepAsking(place, PAUSE, ask, failure);
  void asking.then(() => content.querySelector(".quiet")?.remove());
  return section(name, failure, content);
}

/** Models that are not called, because they failed too often, while there are any. @param {Place} place */
function unavailable(place) {
  const shown = element("div");
  const { api, signal } = place;
  const ask = async () => {
    const samples = samplesOf(await api.text("metrics", { signal }));
    const models = samples.filter(({ name, value }) => name === CIRCUIT && value > 0).map(({ labels }) => labels.model);
    if (signal.aborted || !differs(models)) return;
    const text = `${counted(models.length, "model")} not called, because of failures: ${models.join(", ")}. `;
    const link = element("a", { href: "#/service/models" }, "Models");
    replace(shown, models.length > 0 && element("p", { class: "problem", role: "alert" }, text, link));
  };
  const differs = changes();
  // Who may not read the numbers is told nothing of them.
  void pauseFor(signal, LONG_PAUSE).then(() => keepAsking(place, LONG_PAUSE, ask, element("div")));
  return shown;
}

/** @param {Item[]} items @param {"ago" | "for"} kind @param {string} none @returns {Child[]} */
function list(items, kind, none) {
  if (items.length === 0) return [element("p", { class: "quiet" }, none)];
  const row = (/** @type {Item} */ { status, at, link, text }) =>
    element(
      "li",
      {},
      element(
        "p",
        { class: "meta" },
        badge(status),
        link,
        element("span", {}, kind === "for" && "waiting for ", moment(kind, at)),
      ),
      text !== "" && element("p", { class: "quiet" }, shortened(text, LONGEST_MESSAGE)),
    );
  return [element("ul", { class: "items" }, ...items.map(row))];
}

/** @param {Place} place */
async function waiting({ api, signal, count }) {
  const found = await someWaiting(api, signal, MOST);
  if (!signal.aborted) count("inbox", found.count, found.isMore);
  return found;
}

/** The oldest, and a way to all. @param {Awaited<ReturnType<typeof someWaiting>>} found @returns {Child[]} */
function waits({ items, count, isMore }) {
  const oldest = items.slice(0, MOST).map(({ id, name, what, by, user, since, approval }) => ({
    status: approval === undefined ? "suspended" : "open",
    at: since,
    link: element("a", { href: inboxLink(id) }, approval === undefined ? name : `Approve ${name}`),
    text: [what, `by ${by}`, user].filter(Boolean).join(", "),
  }));
  const all = `${isMore ? "More than " : ""}${counted(count, "question")}`;
  return [
    ...list(oldest, "for", "Nothing waits."),
    count > 0 && element("p", { class: "all" }, element("a", { href: "#/inbox" }, `${all} in the inbox`)),
  ];
}

/** @param {Item[]} items the latest first */
const latest = (items) => items.sort((a, b) => Date.parse(b.at) - Date.parse(a.at)).slice(0, MOST);

/** @param {WorkflowExecution} record */
const executionLink = ({ id, workflowId, workflowName, userId }) =>
  element(
    "a",
    { href: linkTo(`workflows/${segment(workflowId)}/executions/${segment(id)}`, whose(userId)) },
    workflowName,
  );

/** Executions, and runs that belong to none. @param {Place} place @returns {Promise<Item[]>} */
async function failedItems({ api, signal }) {
  const from = new Date(Date.now() - DAY).toISOString();
  const query = new URLSearchParams({ status: "error", from, limit: String(MOST) });
  const [executions, { traces }] = await Promise.all([
    /** @type {Promise<WorkflowExecution[]>} */ (api.get(`workflows/executions?${query}`, { signal })),
    /** @type {Promise<TraceList>} */ (api.get(`observability/traces?spans=false&${query}`, { signal })),
  ]);
  return latest([
    ...executions.map((record) => ({
      status: "error",
      at: record.updatedAt,
      link: executionLink(record),
      text: record.error?.message ?? "",
    })),
    ...traces
      .filter(
        ({ rootSpan: { attributes } }) =>
          attributes[EXECUTION_ID] === undefined && !EXPECTED.has(String(attributes["error.type"])),
      )
      .map(({ traceId, rootSpan, startTime, endTime = startTime }) => ({
        status: "error",
        at: endTime,
        link: element("a", { href: `#/traces/${segment(traceId)}` }, nameOf(rootSpan)),
        text: rootSpan.status.message ?? "",
      })),
  ]);
}

/** @param {Place} place @returns {Promise<ObservabilityStatus["activity"]>} */
async function lastHour({ api, signal }) {
  /** @type {ObservabilityStatus} */
  const status = await api.get("observability/status", { signal });
  return status.activity;
}

/** @param {ObservabilityStatus["activity"]} minutes */
function activity(minutes) {
  const now = Date.now();
  /** @param {(minute: ObservabilityStatus["activity"][number]) => number} read */
  const sum = (read) => minutes.reduce((total, minute) => total + read(minute), 0);
  const failed = sum((minute) => minute.failed);
  const tokens = sum((minute) => minute.inputTokens + minute.outputTokens);
  const cost = sum((minute) => minute.cost);
  return [
    barChart("Requests", `${numberText(sum((minute) => minute.requests))}, ${numberText(failed)} failed`, [
      {
        name: "answered",
        className: "is-first",
        values: byMinute(minutes, (each) => each.requests - each.failed, now),
      },
      { name: "failed", className: "is-bad", values: byMinute(minutes, (each) => each.failed, now) },
    ]),
    barChart("Tokens", `${numberText(tokens)}${cost > 0 ? `, ${dollarText(cost)}` : ""}`, [
      { name: "read", className: "is-first", values: byMinute(minutes, (each) => each.inputTokens, now) },
      { name: "written", className: "is-second", values: byMinute(minutes, (each) => each.outputTokens, now) },
    ]),
    element(
      "p",
      { class: "hint" },
      element("a", { href: "#/service/models" }, "Models and the store"),
      `. Of this process, ${minutes.length < 60 ? `which began counting ${counted(minutes.length, "minute")} ago` : "without reads of the API"}.`,
    ),
  ];
}
