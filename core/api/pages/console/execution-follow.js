/** Reads the events of an execution, and goes on after it was resumed. */
import { segment } from "./api.js";
import { ownerQuery } from "./execution-owner.js";

/** @import { WorkflowStreamEvent } from "../../../../generated/types.ts" */
/** @import { Place } from "./router.js" */

/** Time between two looks for a resumed execution's next event, in milliseconds. */
const PAUSE = 150;
/** Connections in a row that may be lost. */
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
  /** One reader is enough: two would tell everything twice. @type {Promise<void> | null} */
  let reading = null;

  /** Reads what one connection gives. */
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

  /** Reads until it rests, over connections that are lost. */
  async function readThrough() {
    for (let lost = 0; ; lost++) {
      try {
        return await read();
      } catch (error) {
        // The browser's own message, when the service did not answer at all.
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
