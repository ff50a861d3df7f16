/** The steps of a workflow as a tree with the steps of the workflows that it runs, each by its path in an execution. */
import { segment } from "./api.js";

/** @import { WorkflowDetail, WorkflowStep } from "../../../../generated/types.ts" */
/** @import { Api } from "./api.js" */

/**
 * @typedef {object} Step
 * @property {string} path as events name it: behind that of the step that runs its workflow, `money/order`
 * @property {string} name
 * @property {string} type
 * @property {{ label: string, steps: Step[] }[]} branches
 * @property {unknown} resumeSchema its own or its workflow's; null when there is none
 */
/** @typedef {{ detail: WorkflowDetail, steps: Step[], onError: Step[] }} WorkflowTree */

/** The label of the branch that runs when a step has failed. */
export const ON_ERROR = "onError";

/** Sub-workflows that are nested deeper are shown as one step. */
const DEEPEST = 4;

/**
 * @param {Api} api
 * @param {string} id
 * @param {AbortSignal} signal
 * @returns {Promise<WorkflowTree>}
 */
export async function loadTree(api, id, signal) {
  /** @type {Map<string, Promise<WorkflowDetail>>} */
  const asked = new Map();
  /** @param {string} workflow */
  const detailOf = (workflow) => {
    const known = asked.get(workflow) ?? api.get(`workflows/${segment(workflow)}`, { signal });
    asked.set(workflow, known);
    return known;
  };

  /** @param {string} workflow @param {string} prefix @param {number} depth @returns {Promise<{ steps: Step[], onError: Step[] }>} */
  async function stepsOf(workflow, prefix, depth) {
    const detail = await detailOf(workflow);
    /** @param {WorkflowStep} step @returns {Promise<Step>} */
    const treeOf = async (step) => {
      const path = `${prefix}${step.id}`;
      const resumeSchema = step.resumeSchema ?? detail.resumeSchema;
      return { path, name: step.name, type: step.type, branches: await branchesOf(step, path), resumeSchema };
    };
    /** @param {WorkflowStep} step @param {string} path */
    const branchesOf = async (step, path) => {
      const inside = await branchesInside(step, path);
      if (step.onError === undefined) return inside;
      return [...inside, { label: ON_ERROR, steps: await Promise.all(step.onError.map(treeOf)) }];
    };
    /** @param {WorkflowStep} step @param {string} path */
    const branchesInside = async (step, path) => {
      if (step.workflow !== undefined && depth < DEEPEST) {
        const called = await stepsOf(step.workflow, `${path}/`, depth + 1);
        const handles = { label: `${ON_ERROR} of ${step.workflow}`, steps: called.onError };
        return [{ label: step.workflow, steps: called.steps }, ...(called.onError.length > 0 ? [handles] : [])];
      }
      const held = new Map((step.steps ?? []).map((inner) => [inner.id, inner]));
      return Promise.all(
        (step.branches ?? []).map(async (ids, index) => ({
          label: step.type === "andWhen" ? (index === 0 ? "then" : "else") : "",
          steps: await Promise.all(
            ids
              .map((inner) => held.get(inner))
              .filter((inner) => inner !== undefined)
              .map(treeOf),
          ),
        })),
      );
    };
    return {
      steps: await Promise.all(detail.steps.map(treeOf)),
      onError: await Promise.all((detail.onError ?? []).map(treeOf)),
    };
  }

  return { detail: await detailOf(id), ...(await stepsOf(id, "", 0)) };
}

/**
 * All steps, each before those that it holds.
 *
 * @param {WorkflowTree} tree
 */
export const allSteps = ({ steps, onError }) => flatten([...steps, ...onError]);

/** @param {readonly Step[]} steps @returns {Step[]} */
const flatten = (steps) => steps.flatMap((step) => [step, ...step.branches.flatMap((branch) => flatten(branch.steps))]);
