/** One kept run of an agent: how it stands, and what it says and does, as it comes. */
import { Answer } from "./answer.js";
import { segment } from "./api.js";
import { element, replace } from "./elements.js";
import { counted, dollarText, spanText, timeText } from "./formats.js";
import { changes, keepAsking } from "./live.js";
import { markdown } from "./markdown-flow.js";
import { turnView } from "./message-view.js";
import { moment } from "./moments.js";
import { badge, facts, jsonBlock, problem, section } from "./parts.js";
import { linkTo } from "./router.js";
import { cancelRun, runOf, runParts } from "./run-facts.js";
import { inputOf } from "./span-facts.js";
import { question } from "./suspension.js";
import { valueView } from "./value-view.js";
import { inboxLink } from "./waiting.js";

/** @import { AgentRun, TraceSummary } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** Between two looks at a run that goes on, in milliseconds. */
const PAUSE = 2000;
/** A trace may begin before its run does, with the request; in milliseconds. */
const BEFORE = 1000;

/** @param {Place} place */
export async function runView(place) {
  const { api, params, signal, body, announce, keepFocus } = place;
  const { id = "", runId = "" } = params;
  const failure = element("div");
  const head = element("div");
  const actions = element("div", { class: "actions" });
  const outcome = element("div");
  const given = element("div");
  const answer = new Answer((approvalId) => question(place, approvalId));
  const said = section("Answer", turnView(id, answer.body, { isMine: false }));
  said.hidden = true;
  body.append(head, actions, failure, given, outcome, said);
  const differs = changes();
  let status = "";
  /** Whether its parts could be read: then they show what it has said. */
  let isRead = false;
  /** @type {AgentRun | undefined} */
  let latest;
  /** @type {TraceSummary | undefined} */
  let trace;

  /** @param {AgentRun} run */
  function show(run) {
    const changed = status !== "" && status !== run.status;
    ({ status } = run);
    latest = run;
    replace(head, factsOf(run, trace?.traceId));
    replace(actions, isOpen(run) && element("button", { type: "button", class: "plain", onclick: cancel }, "Cancel"));
    replace(outcome, waitsView(run), errorView(run), (!isRead || typeof run.output !== "string") && outputView(run));
    if (!changed) return;
    announce(`The run is ${status}`);
    keepFocus();
  }

  async function cancel() {
    try {
      await cancelRun(api, { agentId: id, runId }, signal);
      await ask();
    } catch (error) {
      if (!signal.aborted) replace(failure, problem(error));
    }
  }

  async function ask() {
    const run = await runOf(api, { agentId: id, runId }, signal);
    if (!signal.aborted && differs(run)) show(run);
  }

  /** What it has said and done from its beginning, and goes on to. The console's key alone does not open it: then the output is shown. */
  async function read() {
    try {
      for await (const part of runParts(api, { agentId: id, runId }, signal)) {
        if (!isRead) {
          isRead = true;
          if (latest !== undefined) show(latest);
        }
        // That of the run stands above.
        if (part.type !== "error") answer.take(part);
        said.hidden = answer.body.childElementCount === 0;
      }
    } catch {
      // What stands above tells how the run is doing.
    }
    // Where this fails, the next look says so.
    if (!signal.aborted) await ask().catch(() => {});
  }

  await ask();
  if (signal.aborted) return;
  if (latest !== undefined)
    void traceOf(place, latest).then((found) => {
      trace = found;
      if (found === undefined || latest === undefined || signal.aborted) return;
      const input = inputOf(found.rootSpan);
      replace(given, input !== "" && section("Input", element("p", { class: "said" }, input)));
      show(latest);
    });
  void read();
  void keepAsking(
    place,
    PAUSE,
    async () => (status === "running" || status === "waiting" ? ask() : undefined),
    failure,
  );
}

/** @param {AgentRun} run */
const isOpen = ({ status }) => status === "running" || status === "waiting";

/**
 * Its own trace, where it is certain: that of a run which the console began, of its conversation, or the only one of its time.
 *
 * @param {Place} place
 * @param {AgentRun} run
 * @returns {Promise<TraceSummary | undefined>}
 */
async function traceOf({ api, signal }, { runId, agentId, startTime, conversationId }) {
  const [from, to] = [-BEFORE, 0].map((shift) => new Date(Date.parse(startTime) + shift).toISOString());
  const query = new URLSearchParams({
    entityType: "agent",
    entityId: agentId,
    from: from ?? "",
    to: to ?? "",
    limit: "50",
    spans: "false",
  });
  try {
    /** @type {{ traces: TraceSummary[] }} */
    const { traces } = await api.get(`observability/traces?${query}`, { signal });
    const own = traces.find(({ traceId }) => traceId === runId);
    if (own !== undefined || conversationId === undefined) return own ?? (traces.length === 1 ? traces[0] : undefined);
    return traces.find(({ rootSpan }) => rootSpan.attributes["gen_ai.conversation.id"] === conversationId);
  } catch {
    return undefined;
  }
}

/** @param {AgentRun} run @param {string} [traceId] */
function factsOf({ runId, agentId, status, startTime, endTime, usage, userId, conversationId }, traceId) {
  const conversation = linkTo(`memory/${segment(agentId)}/${segment(conversationId)}`, { userId: userId ?? "" });
  return facts([
    ["Status", badge(status)],
    ["Agent", element("a", { href: `#/agents/${segment(agentId)}` }, agentId)],
    ["Id", element("code", {}, runId)],
    ["Began", timeText(startTime)],
    ["Took", endTime === undefined ? moment("for", startTime) : spanText(startTime, endTime)],
    ["Tokens", usage !== undefined && counted(usage.totalTokens, "token")],
    ["Cost", usage?.cost !== undefined && dollarText(usage.cost)],
    ["User", userId],
    ["Conversation", conversationId !== undefined && element("a", { href: conversation }, conversationId)],
    traceId !== undefined
      ? ["Trace", element("a", { href: `#/traces/${segment(traceId)}` }, "of this run")]
      : [
          "Traces",
          element(
            "a",
            { href: linkTo("traces", { entityType: "agent", entityId: agentId, from: startTime, to: endTime ?? "" }) },
            "of this agent, in this time",
          ),
        ],
  ]);
}

/** @param {AgentRun} run */
function waitsView({ approvals }) {
  if (approvals.length === 0) return null;
  return section(
    "Waits for a person",
    element(
      "ul",
      { class: "items" },
      ...approvals.map(({ approvalId, toolName, input }) =>
        element(
          "li",
          {},
          element("p", {}, element("a", { href: inboxLink(approvalId) }, `Approve ${toolName}`)),
          valueView(input),
        ),
      ),
    ),
  );
}

/** @param {AgentRun} run */
const errorView = ({ error }) => error !== undefined && section("Error", element("p", { class: "problem" }, error));

/** @param {AgentRun} run */
function outputView({ agentId, output }) {
  if (output === undefined || output === null) return null;
  const shown = typeof output === "string" ? markdown(output) : jsonBlock(output);
  return section("Output", turnView(agentId, shown, { isMine: false }));
}
