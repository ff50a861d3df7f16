/** What the views of kept runs share. */
import { Refusal, segment } from "./api.js";
import { MOST_LISTED } from "./listing.js";
import { pauseFor } from "./live.js";

/** @import { AgentRun, RawStreamPart } from "../../../../generated/types.ts" */
/** @import { Api } from "./api.js" */

/** @param {Pick<AgentRun, "agentId" | "runId">} run */
export const runPath = ({ agentId, runId }) => `agents/${segment(agentId)}/runs/${segment(runId)}`;

/** @param {Pick<AgentRun, "agentId" | "runId">} run */
export const runLink = ({ agentId, runId }) => `#/runs/${segment(agentId)}/${segment(runId)}`;

/** @param {Api} api @param {Pick<AgentRun, "agentId" | "runId">} run @param {AbortSignal} signal */
export const cancelRun = (api, run, signal) => api.post(`${runPath(run)}/cancel`, {}, { signal });

/**
 * A kept run. The console's key opens the list of runs where it does not open a single one.
 *
 * @param {Api} api
 * @param {Pick<AgentRun, "agentId" | "runId">} run
 * @param {AbortSignal} signal
 * @returns {Promise<AgentRun>}
 */
export async function runOf(api, { agentId, runId }, signal) {
  try {
    return await api.get(runPath({ agentId, runId }), { signal });
  } catch (error) {
    if (!(error instanceof Refusal) || (error.status !== 401 && error.status !== 403)) throw error;
    /** @type {AgentRun[]} */
    const runs = await api.get(`agents/${segment(agentId)}/runs?limit=${MOST_LISTED}`, { signal });
    const run = runs.find((each) => each.runId === runId);
    if (run === undefined) throw error;
    return run;
  }
}

/** Between two looks at a run that waits for a person, in milliseconds. */
const PAUSE = 1000;

/**
 * What a run says and does from its beginning until it ends. Its stream ends where it waits for a person: then it is asked for again when
 * somebody has answered.
 *
 * @param {Api} api
 * @param {Pick<AgentRun, "agentId" | "runId">} run
 * @param {AbortSignal} signal
 */
export async function* runParts(api, run, signal) {
  let last = "0";
  // Once more after it has ended: it may have said the rest since its stream ended.
  for (let hasEnded = false; !signal.aborted; ) {
    /** @type {AsyncGenerator<{ id: string, data: RawStreamPart }>} */
    const parts = api.events("GET", `${runPath(run)}/stream`, { signal, headers: { "last-event-id": last } });
    for await (const { id, data } of parts) {
      if (id !== "") last = id;
      yield data;
    }
    if (hasEnded) return;
    for (;;) {
      /** @type {AgentRun} */
      const { status } = await api.get(runPath(run), { signal });
      hasEnded = status !== "running";
      if (status !== "waiting") break;
      await pauseFor(signal, PAUSE);
    }
  }
}
