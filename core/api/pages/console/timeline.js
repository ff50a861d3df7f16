/** The steps of an execution in the order in which they began, each with a bar of its time; beside them what one was given and gave. */
import { element, replace } from "./elements.js";
import { durationText, timeText } from "./formats.js";
import { lengthText } from "./moments.js";
import { badge, facts, section } from "./parts.js";
import { valueView } from "./value-view.js";
import { barOf } from "./waterfall.js";

/** @import { WorkflowStreamEvent, WorkflowExecution } from "../../../../generated/types.ts" */
/** @import { Step } from "./workflow-tree.js" */

/** The most rows: nobody reads more, and they make a browser slow. */
const MOST = 500;
/** How often what runs is drawn anew, in milliseconds. */
const TICK = 1000;

/**
 * @typedef {object} Entry one run of a step
 * @property {string} path
 * @property {number} from in milliseconds since 1970
 * @property {number} [to] absent while it runs or waits
 * @property {string} status
 * @property {unknown} [input]
 * @property {unknown} [output]
 * @property {string} [error]
 * @property {{ row: HTMLElement, button: HTMLElement, bar: HTMLElement, took: HTMLElement, status: HTMLElement }} view
 */

/** Times of events have no more than milliseconds. @param {number} milliseconds */
const tookText = (milliseconds) => (milliseconds < 1 ? "< 1 ms" : durationText(milliseconds));

/** @param {readonly Step[]} steps in a flat list */
export function createTimeline(steps) {
  const names = new Map(steps.map(({ path, name, type }) => [path, { name, type }]));
  /** @type {Entry[]} */
  const entries = [];
  /** The last run of each step. @type {Map<string, Entry>} */
  const last = new Map();
  /** @type {Entry | null} */
  let chosen = null;
  /** Whether a person has chosen the entry: then it stays, whatever begins. */
  let isFixed = false;
  let begin = Number.POSITIVE_INFINITY;
  let end = 0;
  let leftOut = 0;
  let isScheduled = false;
  const rows = element("tbody");
  const more = element("p", { class: "quiet" });
  const panel = element("div", { class: "step-panel" });

  /** Draws at most once a frame, however many events come. */
  function schedule() {
    if (isScheduled) return;
    isScheduled = true;
    requestAnimationFrame(draw);
  }

  function draw() {
    isScheduled = false;
    const isRunning = entries.some(({ to, status }) => to === undefined && status === "running");
    const until = isRunning ? Math.max(end, Date.now()) : end;
    const length = Math.max(1, until - begin);
    for (const { from, to = until, status, view } of entries) {
      replace(view.bar, barOf((from - begin) / length, (to - from) / length, status === "error"));
      replace(view.status, badge(status));
    }
    for (const { from, to, view, status } of entries)
      replace(view.took, to !== undefined ? tookText(to - from) : status === "running" ? lengthText(until - from) : "");
    if (isRunning && rows.isConnected) setTimeout(schedule, TICK);
    replace(more, leftOut > 0 && `${leftOut} more runs of steps are not shown.`);
    if (!isFixed)
      choose(entries.findLast(({ status }) => ["error", "suspended", "running"].includes(status)) ?? entries.at(-1));
    else choose(chosen ?? undefined);
  }

  /** @type {Entry | null} */
  let shown = null;
  let shownStatus = "";
  /** @param {Entry | undefined} entry */
  function choose(entry) {
    chosen = entry ?? null;
    if (chosen === shown && chosen?.status === shownStatus) return;
    shown?.view.button.setAttribute("aria-pressed", "false");
    shown = chosen;
    shownStatus = chosen?.status ?? "";
    chosen?.view.button.setAttribute("aria-pressed", "true");
    replace(panel, chosen !== null && stepPanel(chosen));
  }

  /** @param {Entry} entry */
  function stepPanel({ path, from, to, status, input, output, error }) {
    const { name = path, type } = names.get(path) ?? {};
    return section(
      "Step",
      element("h3", {}, name),
      facts([
        ["Status", badge(status)],
        ["Type", type],
        ["Id", element("code", {}, path)],
        ["Began", timeText(new Date(from).toISOString())],
        ["Took", to !== undefined && tookText(to - from)],
      ]),
      error !== undefined && element("p", { class: "problem" }, error),
      element("h3", {}, "Input"),
      input === undefined ? element("p", { class: "quiet" }, "Not recorded.") : valueView(input),
      output !== undefined && element("h3", {}, "Output"),
      output !== undefined && valueView(output),
    );
  }

  /** @param {string} path @param {number} from @returns {Entry | undefined} */
  function add(path, from) {
    begin = Math.min(begin, from);
    if (entries.length >= MOST) {
      leftOut++;
      return undefined;
    }
    const bar = element("td", { class: "bar-cell" });
    const took = element("td");
    const status = element("td");
    const button = element(
      "button",
      { type: "button", class: "span-name", onclick: press },
      names.get(path)?.name ?? path,
    );
    const head = element("th", { scope: "row" }, button);
    head.style.paddingLeft = `${(path.split("/").length - 1) * 0.9}rem`;
    const row = element("tr", {}, head, status, bar, took);
    /** @type {Entry} */
    const entry = { path, from, status: "running", view: { row, button, bar, took, status } };
    function press() {
      isFixed = true;
      choose(entry);
    }
    entries.push(entry);
    last.set(path, entry);
    rows.append(row);
    return entry;
  }

  /** @param {string} path @param {number} at @param {Partial<Entry>} values */
  function finish(path, at, values) {
    const entry = last.get(path);
    if (entry !== undefined) Object.assign(entry, { to: at, ...values });
  }

  /** @param {WorkflowStreamEvent} event */
  function take(event) {
    if (!("timestamp" in event)) return;
    const at = Date.parse(event.timestamp);
    end = Math.max(end, at);
    switch (event.type) {
      case "step-start": {
        const before = last.get(event.from);
        const entry = before !== undefined && before.to === undefined ? before : add(event.from, at);
        if (entry !== undefined) Object.assign(entry, { status: "running", input: event.input });
        break;
      }
      case "step-complete":
        finish(event.from, at, { status: event.status, output: event.output });
        break;
      case "step-error":
        finish(event.from, at, { status: "error", error: event.error.message });
        break;
      default:
    }
    schedule();
  }

  return {
    body: element(
      "div",
      { class: "beside" },
      section(
        "Timeline",
        element(
          "div",
          { class: "scroll", tabindex: 0, role: "region", "aria-label": "Steps in order" },
          element(
            "table",
            { class: "waterfall timeline" },
            element(
              "caption",
              { class: "unseen" },
              "Steps in the order in which they began. A button shows what one was given and gave.",
            ),
            element(
              "thead",
              {},
              element(
                "tr",
                {},
                ...["Step", "Status", "Time", "Took"].map((text) => element("th", { scope: "col" }, text)),
              ),
            ),
            rows,
          ),
          more,
        ),
      ),
      panel,
    ),
    take,
    /** The status of a step whose events do not tell it. @param {string} path @param {string} status */
    mark(path, status) {
      const entry = last.get(path);
      if (entry === undefined || entry.status === status) return;
      entry.status = status;
      schedule();
    },
    /** What was written down, where the events cannot be read. @param {WorkflowExecution} record */
    show({ events, updatedAt }) {
      for (const { id, from, startTime, endTime, status, input, output, error } of events) {
        if (!id.startsWith("step:")) continue;
        const entry = add(from, Date.parse(startTime));
        if (entry !== undefined) Object.assign(entry, { status, input, output, error: error?.message });
        if (entry !== undefined && endTime !== undefined) entry.to = Date.parse(endTime);
      }
      end = Date.parse(updatedAt);
      schedule();
    },
  };
}
