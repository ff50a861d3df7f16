/** Reads the events of an execution, and goes on after it was resumed. */
import { segment } from "./api.js";
import { ownerQuery } from "./execution-owner.js";

/** @import { WorkflowStreamEvent } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** How long to wait before the events of a resumed execution are asked for again, in milliseconds. */
const PAUSE = 150;
/** How many connections in a row may be lost. */
const MOST_LOST = 6;

/**
 * `readOn` reads until the execution rests; what it has read before it does not tell again.
 *
 * @param {Place} place
 * @param {(event: WorkflowStreamEvent) => void} take
 */
export function createFollower({ api, params, query, signal }, take) {
  const path = `workflows/${segment(params.id)}/executions/${segment(params.executionId)}/stream${ownerQuery(query)}`;
  let last = "0";
  /** The reader that is at work. Two would report each event twice. @type {Promise<void> | null} */
  let reading = null;

  /** Reads the events of one connection. */
  async function read() {
    const headers = { "last-event-id": last };
    /** @type {AsyncGenerator<{ id: string, data: WorkflowStreamEvent }>} */
    const events = api.events("GET", path, { signal, headers });
    for await (const { id, data } of events) {
      if (id !== "") last = id;
      take(data);
    }
  }

  function readOn() {
    reading ??= readThrough().finally(() => {
      reading = null;
    });
    return reading;
  }

  /** Reads until the execution rests, with a new connection when one is lost. */
  async function readThrough() {
    for (let lost = 0; ; lost++) {
      try {
        return await read();
      } catch (error) {
        // `fetch` failed: the service did not answer at all.
        if (signal.aborted || lost >= MOST_LOST || !(error instanceof TypeError)) throw error;
        await new Promise((resolve) => setTimeout(resolve, PAUSE * 2 ** lost));
      }
    }
  }

  /**
   * Reads while a command that makes the execution go on has not been answered: it rests again by then.
   *
   * @param {Promise<unknown>} answered
   */
  async function readUntil(answered) {
    let pending = true;
    const settled = answered
      .catch(() => {})
      .then(() => {
        pending = false;
      });
    while (pending && !signal.aborted) {
      await Promise.race([settled, new Promise((resolve) => setTimeout(resolve, PAUSE))]);
      await readOn();
    }
    return answered;
  }

  return { readOn, readUntil };
}
