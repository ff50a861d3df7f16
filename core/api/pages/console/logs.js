/** Shows the log as it is written: over a WebSocket, or by polling where no WebSocket comes through. */
import { Refusal } from "./api.js";
import { element, replace } from "./elements.js";
import { timeText } from "./formats.js";
import { filterForm } from "./listing.js";
import { jsonBlock, problem } from "./parts.js";

/** @import { Place } from "./router.js" */
/** @typedef {{ timestamp: string, level: string, msg: string, [bound: string]: unknown }} Line */

const FILTERS = [
  { name: "search", label: "Text" },
  { name: "agentId", label: "Agent" },
  { name: "tool", label: "Tool" },
  { name: "conversationId", label: "Conversation" },
  { name: "executionId", label: "Execution" },
];
const LEVELS = ["trace", "debug", "info", "warn", "error", "fatal"];
/** The most lines on the page. */
const MOST = 500;
/** Between two polls, in milliseconds. */
const PAUSE = 2000;

/** @param {Place} place */
export function logsView(place) {
  const { query, body, signal } = place;
  const level = query.get("level") ?? "info";
  const given = FILTERS.map(({ name, label }) => ({ name, label, value: query.get(name) ?? "" }));
  const wanted = given.filter(({ value }) => value !== "").map(({ name, value }) => [name, value]);
  const filter = { level, ...Object.fromEntries(wanted) };
  const state = element("p", { class: "quiet", role: "status" }, "Connecting…");
  const failure = element("div");
  // Screen readers do not announce new lines: they come too fast.
  const list = element("div", { class: "lines", role: "log", "aria-live": "off", "aria-label": "Log", tabindex: 0 });
  const pause = element("button", { type: "button", class: "plain", "aria-pressed": "false", onclick: turn }, "Pause");
  let paused = false;
  /** Lines that came while the page was paused. @type {{ lines: readonly Line[], anew: boolean }} */
  let held = { lines: [], anew: false };

  function turn() {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    if (!paused) show(held.lines, held.anew);
    held = { lines: [], anew: false };
  }

  let failed = "";
  /** Shows a failure once, however often it happens. @param {unknown} error */
  function fail(error) {
    const text = error === null ? "" : String(error);
    if (text !== failed) replace(failure, error !== null && problem(error));
    failed = text;
  }

  /** @param {readonly Line[]} lines the oldest first @param {boolean} anew in place of what is shown */
  function show(lines, anew) {
    if (signal.aborted) return;
    if (paused) {
      const all = anew ? lines : [...held.lines, ...lines];
      held = { lines: all.slice(-MOST), anew: anew || held.anew };
      return;
    }
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    const items = lines.slice(-MOST).map(lineItem);
    if (anew) replace(list, ...items);
    else list.append(...items);
    while (list.childElementCount > MOST) list.firstElementChild?.remove();
    if (atEnd) list.scrollTop = list.scrollHeight;
  }

  body.append(
    filterForm("logs", [
      { name: "level", label: "Least level", value: level, options: LEVELS.map((name) => [name, name]) },
      ...given,
    ]),
    element("div", { class: "actions" }, pause),
    state,
    failure,
    list,
  );
  listen(place, filter, {
    show,
    say: (text) => replace(state, text),
    fail,
  });
}

/**
 * @typedef {object} Listener
 * @property {(lines: readonly Line[], anew: boolean) => void} show the oldest first
 * @property {(text: string) => void} say
 * @property {(error: unknown) => void} fail null: it is over
 */

/**
 * Listens as long as the view is there. A socket that was lost is opened again; one that never opened is done without.
 *
 * @param {Place} place
 * @param {Record<string, string>} filter
 * @param {Listener} listener
 */
function listen({ api, signal }, filter, { show, say, fail }) {
  function connect() {
    const socket = api.socket("ws/logs", filter);
    const leave = () => socket.close();
    let opened = false;
    signal.addEventListener("abort", leave);
    socket.addEventListener("open", () => {
      opened = true;
      say("Live.");
    });
    socket.addEventListener("message", ({ data }) => {
      const { type, logs, count } = JSON.parse(data);
      if (type === "DROPPED") say(`Live. ${count} lines were left out: they came too fast.`);
      else if (Array.isArray(logs)) show(logs, type === "initial");
    });
    socket.addEventListener("close", () => {
      signal.removeEventListener("abort", leave);
      if (signal.aborted) return;
      if (opened) {
        say("The connection was lost.");
        setTimeout(() => !signal.aborted && connect(), PAUSE);
      } else void poll();
    });
  }

  async function poll() {
    /** Lines with the latest time: the next poll gets them again. @type {Set<string>} */
    let known = new Set();
    let since = "";
    while (!signal.aborted) {
      try {
        const query = new URLSearchParams({ ...filter, limit: "200", ...(since !== "" && { since }) });
        const { data } = await /** @type {Promise<{ data: Line[] }>} */ (api.whole(`api/logs?${query}`, { signal }));
        say(`Not live: asked for every ${PAUSE / 1000} s.`);
        fail(null);
        show(data.filter((line) => !known.has(JSON.stringify(line))).reverse(), since === "");
        since = data[0]?.timestamp ?? since;
        known = new Set(data.filter(({ timestamp }) => timestamp === since).map((line) => JSON.stringify(line)));
      } catch (error) {
        if (signal.aborted) return;
        say("");
        fail(error);
        // A refusal is final. A service that does not answer may come back.
        if (error instanceof Refusal) return;
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
  }

  connect();
}

/** Whom a line is about: these names of it are shown without opening it. */
const ABOUT = [
  ["agentId", "agent"],
  ["tool", "tool"],
  ["workflowId", "workflow"],
  ["executionId", "execution"],
  ["conversationId", "conversation"],
  ["userId", "user"],
];

/** @param {Record<string, unknown>} bound */
const whom = (bound) =>
  ABOUT.flatMap(([name = "", label]) => (typeof bound[name] === "string" ? [`${label} ${bound[name]}`] : [])).join(
    " · ",
  );

/** @param {Line} line */
function lineItem({ timestamp, level, msg, ...bound }) {
  const head = [
    element("time", { datetime: timestamp }, timeText(timestamp)),
    element("span", { class: `level is-${level}` }, level),
    element("span", { class: "message" }, msg),
    element("span", { class: "whom" }, whom(bound)),
  ];
  if (Object.keys(bound).length === 0) return element("div", {}, ...head);
  return element("div", {}, element("details", {}, element("summary", {}, ...head), jsonBlock(bound)));
}
