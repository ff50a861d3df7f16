/** One tool, and a form that runs it. */
import { newTrace } from "./answer-facts.js";
import { Refusal, segment } from "./api.js";
import { element, replace } from "./elements.js";
import { durationText } from "./formats.js";
import { badge, facts, jsonDetails, load, problem, resultBlock, section } from "./parts.js";
import { linkTo } from "./router.js";
import { jsonField, valueFields } from "./value-form.js";
import { inboxLink } from "./waiting.js";

/** @import { Tool, ToolExecutionResult } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** @param {Place} place */
export function toolView(place) {
  const { api, params, signal, body, title } = place;
  title(params.name ?? "");
  /** @type {Promise<Tool[]>} */
  const asked = api.get("tools", { signal });
  return load(place, body, asked, (tools) => {
    const tool = tools.find(({ name }) => name === params.name);
    if (tool === undefined) return problem(`No tool has the name ${params.name}.`);
    const { name, description, status, client, tags, agents, parameters } = tool;
    const users = agents.flatMap(({ id, name: label }, index) => [
      index > 0 && ", ",
      element("a", { href: `#/agents/${segment(id)}` }, label),
    ]);
    return [
      element("p", { class: "lead" }, description),
      facts([
        ["Status", badge(status)],
        ["Tags", tags.join(", ")],
        ["Agents", agents.length > 0 && element("span", {}, ...users)],
        [
          "Traces",
          element("a", { href: linkTo("traces", { entityType: "tool", entityId: name }) }, "of calls by themselves"),
        ],
      ]),
      client === true
        ? element("p", {}, "Clients of agents run it: it cannot be run here.")
        : section("Run it", runForm(place, tool)),
      jsonDetails("Schema of the input", parameters),
    ];
  });
}

/** @param {Place} place @param {Tool} tool */
function runForm({ api, signal, announce }, { name, parameters }) {
  const input = valueFields("tool-input", "Input", parameters);
  const context = jsonField("tool-context", "Context (JSON)", undefined, "What the tool sees as context.");
  const run = element("button", { type: "submit" }, "Run");
  const outcome = element("div");
  /** Of the question that a person was asked about the last call: the same call then runs. */
  let approvalId = "";

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    replace(outcome);
    const trace = newTrace();
    try {
      const given = context.read();
      const body = { input: input.read() ?? {}, ...(given !== undefined && { context: given }) };
      const headers = { traceparent: trace.header, ...(approvalId !== "" && { "x-approval-id": approvalId }) };
      run.disabled = true;
      /** @type {ToolExecutionResult} */
      const { result, executionTime } = await api.post(`tools/${segment(name)}/execute`, body, { signal, headers });
      approvalId = "";
      announce(`${name} has run`);
      replace(outcome, element("h3", {}, "Result"), resultBlock(result), after(trace.id, executionTime));
    } catch (error) {
      if (signal.aborted) return;
      const asked = error instanceof Refusal ? (error.headers.get("x-approval-id") ?? "") : "";
      approvalId = asked;
      replace(outcome, problem(error), asked === "" ? after(trace.id) : asks());
    } finally {
      run.disabled = false;
    }
  }

  const asks = () =>
    element(
      "p",
      {},
      "Answer it in the ",
      element("a", { href: inboxLink(approvalId), target: "_blank" }, "inbox"),
      ", then run it again.",
    );

  return element(
    "form",
    { onsubmit: submit },
    input.body,
    element("details", { class: "fold" }, element("summary", {}, "Context"), context.body),
    element("div", { class: "actions" }, run),
    outcome,
  );
}

/** @param {string} traceId @param {number} [took] in milliseconds */
const after = (traceId, took) =>
  element(
    "p",
    { class: "meta quiet" },
    took !== undefined && element("span", {}, durationText(took)),
    element("a", { href: `#/traces/${traceId}` }, "Trace"),
  );
