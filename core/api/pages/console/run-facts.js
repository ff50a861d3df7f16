/** What the views of kept runs share. */
import { segment } from "./api.js";

/** @import { AgentRun } from "../../../../generated/types.ts" */
/** @import { Api } from "./api.js" */

/** @param {Pick<AgentRun, "agentId" | "runId">} run */
const runPath = ({ agentId, runId }) => `agents/${segment(agentId)}/runs/${segment(runId)}`;

/** @param {Pick<AgentRun, "agentId" | "runId">} run */
export const runLink = ({ agentId, runId }) => `#/runs/${segment(agentId)}/${segment(runId)}`;

/** @param {Api} api @param {Pick<AgentRun, "agentId" | "runId">} run @param {AbortSignal} signal */
export const cancelRun = (api, run, signal) => api.post(`${runPath(run)}/cancel`, {}, { signal });
