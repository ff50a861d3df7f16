/** One execution: its graph as it goes, why it waits, what came of it, and ways to cancel, resume and replay it. */
import { segment } from "./api.js";
import { element, replace } from "./elements.js";
import { factsOf, outcomeOf } from "./execution-facts.js";
import { createFollower } from "./execution-follow.js";
import { ownerQuery } from "./execution-owner.js";
import { recordOf } from "./execution-record.js";
import { executionTraces } from "./execution-traces.js";
import { timeText } from "./formats.js";
import { buildGraph } from "./graph.js";
import { changes, keepAsking } from "./live.js";
import { badge, jsonDetails, load, problem, section } from "./parts.js";
import { Progress } from "./progress.js";
import { replay, replayForm } from "./replay-form.js";
import { suspensionPanel } from "./suspension.js";
import { createTimeline } from "./timeline.js";
import { valueView } from "./value-view.js";
import { allSteps, loadTree } from "./workflow-tree.js";

/** @import { ExecutionState, WorkflowStreamEvent } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */
/** @import { WorkflowTree } from "./workflow-tree.js" */

/** Between two looks at an execution that has not ended, in milliseconds: somebody else may answer. */
const PAUSE = 2000;

/** @param {Place} place */
export function executionView(place) {
  const { api, params, query, signal, body, title } = place;
  const path = `workflows/${segment(params.id)}/executions/${segment(params.executionId)}`;
  /** @type {Promise<ExecutionState>} */
  const state = api.get(`${path}/state${ownerQuery(query)}`, { signal });
  const asked = Promise.all([state, loadTree(api, params.id ?? "", signal)]);
  return load(place, body, asked, ([known, tree]) => {
    title(`Execution of ${tree.detail.name}`);
    return show(place, path, known, tree);
  });
}

/** @param {Place} place @param {string} path @param {ExecutionState} known @param {WorkflowTree} tree */
function show(place, path, known, tree) {
  const { api, query, signal, announce, keepFocus } = place;
  const owner = ownerQuery(query);
  const graph = buildGraph(tree, { live: true });
  const head = element("div");
  const waiting = element("div");
  const outcome = element("div");
  const actions = element("div", { class: "actions" });
  const failure = element("div");
  const again = element("div");
  const traces = element("div");
  const events = element("ol", { class: "events" });
  const timeline = createTimeline(allSteps(tree));
  const waitsAnew = changes();
  const progress = new Progress((step, status) => {
    graph.mark(step, status);
    timeline.mark(step, status);
  });
  const follower = createFollower(place, take);
  let status = "";

  /** @param {ExecutionState} state */
  function showState(state) {
    const changed = status !== "" && status !== state.status;
    status = state.status;
    replace(head, factsOf(place, state));
    const suspension = state.status === "suspended" ? state.suspension : undefined;
    // What is being typed into the form stays.
    if (waitsAnew(suspension)) replace(waiting, suspension && suspensionPanel(place, state, tree, resume));
    replace(outcome, outcomeOf(place, state, tree, result));
    replace(
      actions,
      status === "running" && button("Suspend", () => command("suspend", {})),
      (status === "running" || status === "suspended") && button("Cancel", () => command("cancel", {})),
      state.error?.stepId !== undefined && button("Retry", () => retry({ stepId: state.error?.stepId })),
    );
    replace(again, status !== "running" && section("Replay", replayForm(place, path, tree)));
    if (!changed) return;
    announce(`The execution is ${status}`);
    keepFocus();
  }

  /** @type {unknown} */
  let result;
  /** @param {WorkflowStreamEvent} event */
  function take(event) {
    if (event.type === "error") throw new Error(event.error);
    timeline.take(event);
    progress.take(event);
    // That of one which is suspended says null.
    if (event.type === "workflow-result" && event.status === "completed") result = event.result;
    if (event.type === "workflow-start" && waitsAnew(undefined)) replace(waiting);
    events.append(eventItem(event));
  }

  async function refresh() {
    /** @type {ExecutionState} */
    const state = await api.get(`${path}/state${owner}`, { signal });
    // Somebody may have answered between the end of the stream and this look.
    if (state.status === "completed" && result === undefined) await follower.readOn().catch(() => {});
    showState(state);
    if (state.status !== "running") replace(traces, await executionTraces(api, state, signal));
  }

  async function follow() {
    try {
      await follower.readOn();
    } catch (error) {
      // The console's key does not open streams: then the stored state is shown.
      const record = await recordOf(api, known, signal);
      if (record !== undefined) timeline.show(record);
      for (const { id, from, status: step } of record?.events ?? [])
        if (id.startsWith("step:")) progress.set(from, step);
      result = record?.output;
      replace(failure, problem(error));
    }
    await refresh();
  }

  /** @param {string} verb @param {object} body */
  async function command(verb, body) {
    replace(failure);
    try {
      await api.post(`${path}/${verb}${owner}`, body, { signal });
      await follower.readOn();
      await refresh();
    } catch (error) {
      if (!signal.aborted) replace(failure, problem(error));
    }
  }

  /** @param {object} body */
  async function retry(body) {
    try {
      await replay(place, path, body);
    } catch (error) {
      if (!signal.aborted) replace(failure, problem(error));
    }
  }

  /** @param {unknown} resumeData */
  async function resume(resumeData) {
    const body = resumeData === undefined ? {} : { resumeData };
    const answered = api.post(`${path}/resume${owner}`, body, { signal });
    replace(failure);
    try {
      await follower.readUntil(answered);
    } catch (error) {
      if (!signal.aborted) replace(failure, problem(error));
    }
    if (!signal.aborted) await refresh();
  }

  /** Sees when somebody else answers. */
  async function lookAgain() {
    // One that runs is here once nobody reads it: it went on between the end of the stream and the look after that.
    if (status !== "suspended" && status !== "running") return;
    const before = status;
    /** @type {ExecutionState} */
    const { status: now } = await api.get(`${path}/state${owner}`, { signal });
    if (now === before || status !== before) return;
    await follower.readOn().catch(() => {});
    await refresh();
  }

  showState(known);
  follow()
    .catch((error) => {
      if (!signal.aborted) replace(failure, problem(error));
    })
    .then(() => keepAsking(place, PAUSE, lookAgain, element("div")));
  return [
    head,
    actions,
    failure,
    element("div", { class: "halves" }, section("Input", valueView(known.input)), element("div", {}, waiting, outcome)),
    timeline.body,
    traces,
    section("Steps", graph.body),
    again,
    section("Events", element("details", { class: "fold" }, element("summary", {}, "What happened, in order"), events)),
  ];
}

/** @param {string} label @param {() => void} action */
const button = (label, action) => element("button", { type: "button", class: "plain", onclick: action }, label);

/** @param {WorkflowStreamEvent} event */
function eventItem(event) {
  if (event.type === "error") return element("li", {}, problem(event.error));
  const from = "from" in event ? event.from : "";
  const status = "status" in event ? event.status : "";
  const value = "output" in event ? event.output : undefined;
  return element(
    "li",
    {},
    element("time", { datetime: event.timestamp }, timeText(event.timestamp)),
    ` ${event.type} `,
    element("code", {}, from ?? ""),
    " ",
    status !== "" && badge(status),
    jsonDetails("Output", value),
  );
}
