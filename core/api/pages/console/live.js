/** Keeps a view up to date: it asks again as long as the view is there and somebody may be looking. */
import { Refusal } from "./api.js";
import { replace } from "./elements.js";
import { problem } from "./parts.js";

/** @import { Place } from "./router.js" */

/** The status of a limit that is over after a while. */
const TOO_MANY = 429;

/** @param {AbortSignal} signal @param {number} milliseconds @returns {Promise<void>} earlier when the signal aborts */
export function pauseFor(signal, milliseconds) {
  return new Promise((resolve) => {
    const timer = setTimeout(end, milliseconds);
    function end() {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    }
    signal.addEventListener("abort", end);
  });
}

/** @param {AbortSignal} signal @returns {Promise<void>} when the page is seen, or the view is left */
function whenSeen(signal) {
  if (!document.hidden || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = () => {
      document.removeEventListener("visibilitychange", end);
      resolve();
    };
    document.addEventListener("visibilitychange", end);
    signal.addEventListener("abort", end, { once: true });
  });
}

/**
 * Asks at once, and again after each pause. A failure is shown until it is over. A refusal is final, because the next request would
 * be refused too.
 *
 * @param {Pick<Place, "signal">} place
 * @param {number} pause in milliseconds
 * @param {() => Promise<void>} ask
 * @param {HTMLElement} failure where a failure is shown
 */
export async function keepAsking({ signal }, pause, ask, failure) {
  while (!signal.aborted) {
    try {
      await ask();
      if (failure.childElementCount > 0) replace(failure);
    } catch (error) {
      if (signal.aborted) return;
      if (failure.childElementCount === 0 || error instanceof Refusal) replace(failure, problem(error));
      if (error instanceof Refusal && error.status < 500 && error.status !== TOO_MANY) return;
    }
    await pauseFor(signal, pause);
    await whenSeen(signal);
  }
}

/**
 * Tells whether a value differs from the one before, so that what has not changed is not drawn anew: it may have the focus.
 *
 * @returns {(value: unknown) => boolean}
 */
export function changes() {
  /** @type {string | null} */
  let before = null;
  return (value) => {
    const text = JSON.stringify(value) ?? "";
    const differs = text !== before;
    before = text;
    return differs;
  };
}
