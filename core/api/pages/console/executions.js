/** Executions of all workflows, newest first, as they come; one is found by its id. */
import { Refusal, segment } from "./api.js";
import { element } from "./elements.js";
import { whose } from "./execution-owner.js";
import { recordOf } from "./execution-record.js";
import { spanText } from "./formats.js";
import { choice, filterForm, fromOf, lengthOf, MOST_LISTED, pageOf, rangeFilter, SLOW_PAUSE } from "./listing.js";
import { liveList, PAGE } from "./live-list.js";
import { moment } from "./moments.js";
import { badge, clipped } from "./parts.js";
import { linkTo } from "./router.js";
import { inWords } from "./waiting.js";

/** @import { ExecutionState, WorkflowExecution, WorkflowSummary } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

const STATUSES = ["", "running", "suspended", "completed", "error", "cancelled"];

/** @param {Place} place */
export async function executionsView(place) {
  const { api, signal, query, body } = place;
  const given = (/** @type {string} */ name) => query.get(name) ?? "";
  const [id, workflow, status, userId, attribute] = ["id", "workflow", "status", "userId", "attribute"].map(given);
  const page = pageOf(query);
  const chosen = choice(query, ["oldest", "longest"]);
  const list = element("div", {}, element("p", { class: "quiet" }, "Loading…"));
  const failure = element("div");
  /** @type {WorkflowSummary[]} */
  const workflows = await api.get("workflows", { signal });
  if (signal.aborted) return;
  body.append(
    filterForm("executions", [
      {
        name: "workflow",
        label: "Workflow",
        value: workflow ?? "",
        options: [["", "all"], ...workflows.map((each) => /** @type {const} */ ([each.id, each.name]))],
      },
      { name: "status", label: "Status", value: status ?? "", options: STATUSES.map((text) => [text, text || "all"]) },
      { name: "id", label: "Id", value: id ?? "" },
      { name: "userId", label: "User", value: userId ?? "" },
      { name: "attribute", label: "Metadata", value: attribute ?? "", form: "key=value" },
      rangeFilter(query),
      ...chosen.filters,
    ]),
    ...(chosen.hint ? [chosen.hint] : []),
    failure,
    list,
  );

  /** @returns {Promise<WorkflowExecution[]>} */
  const find = async () => {
    if (id) return findById(place, id, workflow ? [workflow] : workflows.map((each) => each.id));
    const asked = new URLSearchParams({ limit: String(chosen.isMade ? MOST_LISTED : PAGE + 1) });
    if (!chosen.isMade) asked.set("offset", String(page * PAGE));
    if (workflow) asked.set("workflowId", workflow);
    if (status) asked.set("status", status);
    if (userId) asked.set("userId", userId);
    const from = fromOf(query);
    if (from !== "") asked.set("from", from);
    const [, key, value] = /^([^=]+)=(.*)$/.exec(attribute ?? "") ?? [];
    if (key !== undefined) asked.set(`metadata.${key.trim()}`, value ?? "");
    /** @type {WorkflowExecution[]} */
    const found = await api.get(`workflows/executions?${asked}`, { signal });
    if (!chosen.isMade) return found;
    return chosen.of(found, { longest: took }).slice(page * PAGE, (page + 1) * PAGE + 1);
  };

  const heads = ["Execution", "Workflow", "Status", "User", "Input", "Began", "Took", "Steps"];
  liveList(place, {
    title: "Executions",
    heads,
    page,
    find,
    row,
    list,
    failure,
    ...(chosen.isMade && { pause: SLOW_PAUSE }),
  });
}

/** @param {WorkflowExecution} record */
const took = ({ status, createdAt, updatedAt }) => lengthOf(createdAt, status === "running" ? undefined : updatedAt);

/**
 * Ids are unique within a workflow and a user only.
 *
 * @param {Place} place
 * @param {string} id
 * @param {readonly string[]} workflows
 * @returns {Promise<WorkflowExecution[]>}
 */
async function findById({ api, signal }, id, workflows) {
  const found = await Promise.all(
    workflows.map(async (workflow) => {
      try {
        /** @type {ExecutionState} */
        const state = await api.get(`workflows/${segment(workflow)}/executions/${segment(id)}/state`, { signal });
        return await recordOf(api, state, signal);
      } catch (error) {
        if (error instanceof Refusal && error.status === 404) return undefined;
        throw error;
      }
    }),
  );
  return found.filter((record) => record !== undefined);
}

/** @param {WorkflowExecution} record */
function row({ id, workflowId, workflowName, userId, status, input, error, createdAt, updatedAt, events, suspension }) {
  const link = linkTo(`workflows/${segment(workflowId)}/executions/${segment(id)}`, whose(userId));
  const steps = events.filter((event) => event.id.startsWith("step:")).length;
  return [
    element("a", { href: link, id: `row-${workflowId}-${userId ?? ""}-${id}` }, element("code", {}, id)),
    workflowName,
    element(
      "span",
      {},
      badge(status),
      status === "suspended" && suspension && " waiting for ",
      status === "suspended" && suspension && moment("for", suspension.suspendedAt),
      error !== undefined && " ",
      error !== undefined && clipped(error.message, 50),
    ),
    userId ?? "",
    clipped(inWords(input)),
    moment("ago", createdAt),
    status === "running" ? moment("for", createdAt) : spanText(createdAt, updatedAt),
    steps,
  ];
}
