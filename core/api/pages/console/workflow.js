/** One workflow: its graph, and a form that runs it. */
import { segment } from "./api.js";
import { element } from "./elements.js";
import { exampleOf } from "./example.js";
import { buildGraph } from "./graph.js";
import { facts, jsonDetails, load, problem, section } from "./parts.js";
import { linkTo } from "./router.js";
import { jsonField } from "./value-form.js";
import { loadTree } from "./workflow-tree.js";

/** @import { WorkflowStreamEvent } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */
/** @import { WorkflowTree } from "./workflow-tree.js" */

/** @param {Place} place */
export function workflowView(place) {
  const { api, params, signal, body, title } = place;
  return load(place, body, loadTree(api, params.id ?? "", signal), (tree) => {
    const { detail } = tree;
    title(detail.name);
    return [
      detail.purpose !== "" && element("p", { class: "lead" }, detail.purpose),
      facts([
        ["Id", element("code", {}, detail.id)],
        ["Executions", element("a", { href: linkTo("executions", { workflow: detail.id }) }, "of this workflow")],
        [
          "Traces",
          element("a", { href: linkTo("traces", { entityType: "workflow", entityId: detail.id }) }, "of this workflow"),
        ],
      ]),
      section("Run it", runForm(place, tree)),
      section("Steps", buildGraph(tree, { live: false }).body),
      section(
        "Schemas",
        jsonDetails("Input", detail.inputSchema ?? "any"),
        jsonDetails("Result", detail.resultSchema ?? "any"),
        jsonDetails("Resume", detail.resumeSchema ?? "any"),
      ),
    ];
  });
}

/** @param {Place} place @param {WorkflowTree} tree */
function runForm({ api, signal }, { detail }) {
  const { id, inputSchema } = detail;
  const input = jsonField("run-input", "Input (JSON)", inputSchema === null ? {} : exampleOf(inputSchema));
  const run = element("button", { type: "submit" }, "Run");
  const failure = element("div");

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    failure.replaceChildren();
    run.disabled = true;
    try {
      const body = { input: input.read() ?? null };
      /** @type {AsyncGenerator<{ data: WorkflowStreamEvent }>} */
      const events = api.events("POST", `workflows/${segment(id)}/stream`, { body, signal });
      // The execution goes on without this reader: its own page follows it.
      for await (const { data } of events) {
        if (!("executionId" in data)) throw new Error(data.error);
        location.hash = linkTo(`workflows/${segment(id)}/executions/${segment(data.executionId)}`);
        break;
      }
    } catch (error) {
      if (!signal.aborted) failure.replaceChildren(problem(error));
    } finally {
      run.disabled = false;
    }
  }

  return element("form", { onsubmit: submit }, input.body, element("div", { class: "actions" }, run), failure);
}
