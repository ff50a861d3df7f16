/** Runs of agents that are kept, newest first, as they come: they go on without their client, and after a restart. */
import { Refusal, segment } from "./api.js";
import { element, replace } from "./elements.js";
import { counted, dollarText, spanText } from "./formats.js";
import { choice, filterForm, lengthOf, MOST_LISTED, pageOf, SLOW_PAUSE } from "./listing.js";
import { liveList, PAGE } from "./live-list.js";
import { moment } from "./moments.js";
import { badge, clipped, problem } from "./parts.js";
import { cancelRun, runLink, runOf } from "./run-facts.js";
import { inWords } from "./waiting.js";

/** @import { AgentRun, AgentSummary } from "../../../../generated/types.ts" */
/** @import { Child } from "./elements.js" */
/** @import { Place } from "./router.js" */

/** Runs are listed for each agent: of more agents, one has to be chosen. */
const MOST_AGENTS = 12;
const STATUSES = ["", "running", "waiting", "completed", "error", "cancelled"];

/** @param {Place} place */
export async function runsView(place) {
  const { api, signal, query, body, announce } = place;
  const page = pageOf(query);
  const status = query.get("status") ?? "";
  const id = query.get("id") ?? "";
  const chosen = choice(query, ["oldest", "longest", "dearest"]);
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
      { name: "id", label: "Id", value: id },
      ...chosen.filters,
    ]),
    ...(chosen.hint ? [chosen.hint] : []),
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
    if (id !== "") return findById();
    const offset = asked.length === 1 && !chosen.isMade ? page * PAGE : 0;
    const limit = chosen.isMade ? MOST_LISTED : Math.min(MOST_LISTED, (page + 1) * PAGE + 1 - offset);
    const most = new URLSearchParams({
      offset: String(offset),
      limit: String(limit),
      ...(status !== "" && { status }),
    });
    const found = await Promise.all(
      asked.map((id) => /** @type {Promise<AgentRun[]>} */ (api.get(`agents/${segment(id)}/runs?${most}`, { signal }))),
    );
    const newest = found.flat().sort((a, b) => Date.parse(b.startTime) - Date.parse(a.startTime));
    const all = chosen.of(newest, {
      longest: ({ startTime, endTime }) => lengthOf(startTime, endTime),
      dearest: ({ usage }) => usage?.cost ?? 0,
    });
    return all.slice(page * PAGE - offset, (page + 1) * PAGE + 1 - offset);
  }

  /** @returns {Promise<AgentRun[]>} */
  async function findById() {
    const found = asked.map(async (agentId) => {
      try {
        return await runOf(api, { agentId, runId: id }, signal);
      } catch (error) {
        if (error instanceof Refusal && error.status === 404) return undefined;
        throw error;
      }
    });
    return (await Promise.all(found)).filter((run) => run !== undefined);
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
      usage?.cost !== undefined && dollarText(usage.cost),
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
  const ask = liveList(place, {
    title: "Runs",
    heads,
    page,
    find,
    row,
    list,
    failure,
    ...(chosen.isMade && { pause: SLOW_PAUSE }),
  });
}
