/** Runs of agents that are kept, newest first, as they come: they go on without their client, and after a restart. */
import { segment } from "./api.js";
import { element, replace } from "./elements.js";
import { counted, spanText } from "./formats.js";
import { filterForm, pageOf } from "./listing.js";
import { liveList, PAGE } from "./live-list.js";
import { moment } from "./moments.js";
import { badge, clipped, problem } from "./parts.js";
import { cancelRun, runLink } from "./run-facts.js";
import { inWords } from "./waiting.js";

/** @import { AgentRun, AgentSummary } from "../../../../generated/types.ts" */
/** @import { Child } from "./elements.js" */
/** @import { Place } from "./router.js" */

/** Runs are listed for each agent: of more agents, one has to be chosen. */
const MOST_AGENTS = 12;
/** The longest list that the service gives. Older runs are found by their agent. */
const MOST_LISTED = 500;
const STATUSES = ["", "running", "waiting", "completed", "error", "cancelled"];

/** @param {Place} place */
export async function runsView(place) {
  const { api, signal, query, body, announce } = place;
  const page = pageOf(query);
  const status = query.get("status") ?? "";
  const failure = element("div");
  const list = element("div", {}, element("p", { class: "quiet" }, "Loading…"));
  /** @type {AgentSummary[]} */
  const agents = await api.get("agents", { signal });
  if (signal.aborted) return;
  const isAllAllowed = agents.length <= MOST_AGENTS;
  const agent = query.get("agent") ?? (isAllAllowed ? "" : (agents[0]?.id ?? ""));
  const choices = agents.map(({ id, name }) => /** @type {const} */ ([id, name]));
  body.append(
    filterForm("runs", [
      { name: "agent", label: "Agent", value: agent, options: isAllAllowed ? [["", "all"], ...choices] : choices },
      { name: "status", label: "Status", value: status, options: STATUSES.map((text) => [text, text || "all"]) },
    ]),
    element(
      "p",
      { class: "hint" },
      "Runs that last: those of durable agents, in the background, and of chats that can be read again.",
    ),
    failure,
    list,
  );
  const names = new Map(choices);
  const asked = agent === "" ? agents.map(({ id }) => id) : [agent];

  /** A page of the runs of several agents together needs as many of each as there are up to its end. @returns {Promise<AgentRun[]>} */
  async function find() {
    const offset = asked.length === 1 ? page * PAGE : 0;
    const limit = Math.min(MOST_LISTED, (page + 1) * PAGE + 1 - offset);
    const most = new URLSearchParams({
      offset: String(offset),
      limit: String(limit),
      ...(status !== "" && { status }),
    });
    const found = await Promise.all(
      asked.map((id) => /** @type {Promise<AgentRun[]>} */ (api.get(`agents/${segment(id)}/runs?${most}`, { signal }))),
    );
    const newest = found.flat().sort((a, b) => Date.parse(b.startTime) - Date.parse(a.startTime));
    return newest.slice(page * PAGE - offset, (page + 1) * PAGE + 1 - offset);
  }

  /** @param {AgentRun} run @returns {Child[]} */
  function row(run) {
    const { runId, agentId, status: now, startTime, endTime, usage, userId, approvals, output, error } = run;
    const asks = approvals.map(({ toolName, input }) => `${toolName}: ${inWords(input)}`).join("; ");
    const isOpen = now === "running" || now === "waiting";
    return [
      element("a", { href: runLink(run), id: `row-${agentId}-${runId}` }, element("code", {}, runId)),
      names.get(agentId) ?? agentId,
      element("span", {}, badge(now), now === "waiting" && [" for ", counted(approvals.length, "answer")].join("")),
      userId ?? "",
      clipped(error ?? (asks || inWords(output))),
      usage?.totalTokens ?? "",
      usage?.cost !== undefined && `$${usage.cost.toPrecision(2)}`,
      moment("ago", startTime),
      endTime === undefined ? moment("for", startTime) : spanText(startTime, endTime),
      isOpen && cancel(run),
    ];
  }

  /** @param {AgentRun} run */
  function cancel(run) {
    const click = async () => {
      try {
        await cancelRun(api, run, signal);
        announce(`The run ${run.runId} is cancelled`);
        await ask();
      } catch (error) {
        if (!signal.aborted) replace(failure, problem(error));
      }
    };
    const label = `Cancel ${run.runId}`;
    return element("button", { type: "button", class: "plain small", "aria-label": label, onclick: click }, "Cancel");
  }

  const heads = ["Run", "Agent", "Status", "User", "Says", "Tokens", "Cost", "Began", "Took", ""];
  const ask = liveList(place, { title: "Runs", heads, page, find, row, list, failure });
}
