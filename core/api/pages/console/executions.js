/** Executions of all workflows, newest first. */
import { segment } from "./api.js";
import { element } from "./elements.js";
import { whose } from "./execution-owner.js";
import { spanText, timeText } from "./formats.js";
import { filterForm, pageOf, pager } from "./listing.js";
import { badge, load, table } from "./parts.js";
import { linkTo } from "./router.js";

/** @import { WorkflowExecution, WorkflowSummary } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

const PAGE = 25;
const STATUSES = ["", "running", "suspended", "completed", "error", "cancelled"];

/** @param {Place} place */
export async function executionsView(place) {
  const { api, signal, query, body } = place;
  const workflow = query.get("workflow") ?? "";
  const status = query.get("status") ?? "";
  const page = pageOf(query);
  const list = element("div");
  /** @type {WorkflowSummary[]} */
  const workflows = await api.get("workflows", { signal });
  if (signal.aborted) return;
  body.append(
    filterForm("executions", [
      {
        name: "workflow",
        label: "Workflow",
        value: workflow,
        options: [["", "all"], ...workflows.map(({ id, name }) => /** @type {const} */ ([id, name]))],
      },
      { name: "status", label: "Status", value: status, options: STATUSES.map((text) => [text, text || "all"]) },
    ]),
    list,
  );
  const asked = new URLSearchParams({ limit: String(PAGE + 1), offset: String(page * PAGE) });
  if (workflow !== "") asked.set("workflowId", workflow);
  if (status !== "") asked.set("status", status);
  /** @type {Promise<WorkflowExecution[]>} */
  const records = api.get(`workflows/executions?${asked}`, { signal });
  await load(place, list, records, (found) => [
    found.length === 0
      ? element("p", { class: "quiet" }, "No executions.")
      : table(
          "Executions",
          ["Execution", "Workflow", "Status", "Began", "Took", "Steps"],
          found.slice(0, PAGE).map(row),
        ),
    pager("executions", { workflow, status }, page, found.length > PAGE),
  ]);
}

/** @param {WorkflowExecution} record */
function row({ id, workflowId, workflowName, userId, status, createdAt, updatedAt, events }) {
  const link = linkTo(`workflows/${segment(workflowId)}/executions/${segment(id)}`, whose(userId));
  const steps = events.filter((event) => event.id.startsWith("step:")).length;
  return [
    element("a", { href: link }, element("code", {}, id)),
    workflowName,
    badge(status),
    timeText(createdAt),
    spanText(createdAt, status === "running" ? undefined : updatedAt),
    steps,
  ];
}
