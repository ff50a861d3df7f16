/** Computes from its events how far an execution is. */

/** @import { WorkflowStreamEvent } from "../../../../generated/types.ts" */

/** The status of steps that were running when the execution came to rest. @type {Record<string, string>} */
const AT_REST = { suspended: "suspended", completed: "cancelled", cancelled: "cancelled", error: "error" };

export class Progress {
  /** @type {Map<string, string>} */
  #steps = new Map();
  #mark;

  /** @param {(path: string, status: string) => void} mark is told of every change */
  constructor(mark) {
    this.#mark = mark;
  }

  /** @param {WorkflowStreamEvent} event */
  take(event) {
    switch (event.type) {
      case "workflow-start":
        return this.#turn("suspended", "running");
      case "step-start":
      case "step-complete":
      case "step-error":
        return this.set(event.from, event.status);
      case "workflow-result":
        return this.#rest(event.status);
      default:
    }
  }

  /** @param {string} path @param {string} status */
  set(path, status) {
    this.#steps.set(path, status);
    this.#mark(path, status);
  }

  /** @param {string} status of the execution */
  #rest(status) {
    const left = AT_REST[status] ?? status;
    this.#turn("running", left);
    if (status !== "suspended") this.#turn("suspended", left);
  }

  /** @param {string} from @param {string} to */
  #turn(from, to) {
    for (const [path, status] of this.#steps) if (status === from) this.set(path, to);
  }
}
