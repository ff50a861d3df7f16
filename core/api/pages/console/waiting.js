/** What waits for a person: questions of tools, and executions that are suspended for anything else. */
import { Refusal } from "./api.js";

/** @import { Approval, Suspension, WorkflowExecution } from "../../../../generated/types.ts" */
/** @import { Api } from "./api.js" */

/**
 * @typedef {object} Waiting
 * @property {string} id as the address of the inbox has it
 * @property {string} name of the tool or the workflow
 * @property {string} what is asked
 * @property {string} by whom it was asked
 * @property {string} user
 * @property {string} since
 * @property {Approval} [approval]
 * @property {WorkflowExecution} [execution]
 */

/** The question that a tool of the step asks, where it is one. @param {Suspension | undefined} suspension */
export function approvalIdOf(suspension) {
  const data = suspension?.suspendData;
  return typeof data === "object" && data !== null && "approvalId" in data ? String(data.approvalId) : null;
}

/** Of each kind. */
const MOST = 1000;
/** The longest page of approvals, and of executions. */
const PAGES = { approvals: 100, executions: 500 };

/**
 * @template T
 * @param {(offset: number) => Promise<T[]>} page
 * @param {number} size of a full page
 * @param {(records: readonly T[]) => boolean} [enough]
 */
async function inPages(page, size, enough = () => false) {
  /** @type {T[]} */
  const all = [];
  for (;;) {
    const found = await page(all.length);
    all.push(...found);
    if (found.length < size || all.length >= MOST || enough(found)) return all;
  }
}

/**
 * Open questions, oldest first.
 *
 * @param {Api} api
 * @param {AbortSignal} signal
 * @param {(records: readonly Approval[]) => boolean} [enough] asked of each page
 * @returns {Promise<Approval[]>}
 */
export const openApprovals = (api, signal, enough) =>
  inPages(
    (offset) => api.get(`approvals?limit=${PAGES.approvals}&offset=${offset}`, { signal }),
    PAGES.approvals,
    enough,
  );

/** Suspended executions that wait for something else than the answer to a question of a tool. @param {readonly WorkflowExecution[]} executions */
const others = (executions) => executions.filter(({ suspension }) => approvalIdOf(suspension) === null);

/**
 * Executions with their newest first. Whoever may answer questions need not be permitted to list them.
 *
 * @param {Api} api
 * @param {AbortSignal} signal
 * @param {number} limit
 * @param {number} [offset]
 * @returns {Promise<WorkflowExecution[]>}
 */
async function suspended(api, signal, limit, offset = 0) {
  try {
    return await api.get(`workflows/executions?status=suspended&limit=${limit}&offset=${offset}`, { signal });
  } catch (error) {
    if (error instanceof Refusal && (error.status === 401 || error.status === 403)) return [];
    throw error;
  }
}

/** All that waits, the oldest first. @param {Api} api @param {AbortSignal} signal @returns {Promise<Waiting[]>} */
export async function allWaiting(api, signal) {
  const [approvals, executions] = await Promise.all([
    openApprovals(api, signal),
    inPages((offset) => suspended(api, signal, PAGES.executions, offset), PAGES.executions),
  ]);
  return inOrder(approvals, others(executions));
}

/**
 * The oldest questions and the latest executions of a small page, and how many wait: at least so many when `isMore`.
 *
 * @param {Api} api
 * @param {AbortSignal} signal
 * @param {number} most of each
 */
export async function someWaiting(api, signal, most) {
  const [{ data, total }, executions] = await Promise.all([
    /** @type {Promise<{ data: Approval[], total: number }>} */ (api.whole(`approvals?limit=${most}`, { signal })),
    suspended(api, signal, most),
  ]);
  const waiting = others(executions);
  return { items: inOrder(data, waiting), count: total + waiting.length, isMore: executions.length === most };
}

/** @param {readonly Approval[]} approvals @param {readonly WorkflowExecution[]} executions */
const inOrder = (approvals, executions) =>
  [...approvals.map(ofApproval), ...executions.toReversed().map(ofExecution)].sort(
    (a, b) => Date.parse(a.since) - Date.parse(b.since),
  );

/** @param {Approval} approval @returns {Waiting} */
const ofApproval = (approval) => ({
  id: approval.approvalId,
  name: approval.toolName,
  what: [approval.input, approval.context].map(inWords).filter(Boolean).join(", "),
  by: approval.agentId ?? approval.workflowId ?? "a request",
  user: approval.userId ?? "",
  since: approval.createdAt,
  approval,
});

/** @param {WorkflowExecution} execution @returns {Waiting} */
const ofExecution = (execution) => ({
  id: `${execution.workflowId}/${execution.id}/${execution.userId ?? ""}`,
  name: execution.workflowName,
  what: [execution.suspension?.reason, inWords(execution.suspension?.suspendData ?? execution.input)]
    .filter(Boolean)
    .join(": "),
  by: `execution ${execution.id}`,
  user: execution.userId ?? "",
  since: execution.suspension?.suspendedAt ?? execution.updatedAt,
  execution,
});

/** `orderId A-1002, amount 250`. @param {unknown} value @returns {string} */
export function inWords(value) {
  if (value === undefined || value === null) return "";
  if (typeof value !== "object" || Array.isArray(value))
    return typeof value === "string" ? value : JSON.stringify(value);
  return Object.entries(value)
    .map(([name, each]) => `${name} ${typeof each === "string" ? each : JSON.stringify(each)}`)
    .join(", ");
}

/** The address of one in the inbox. @param {string} id */
export const inboxLink = (id) => `#/inbox?${new URLSearchParams({ item: id })}`;
