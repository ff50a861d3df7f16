/** Lists the steps of a workflow, including those of the workflows that it calls. */
import type { StepList, StepManifest, WorkflowManifest } from "../../manifest/manifest.ts";
import type { StepPath } from "../journal/entries.ts";
import type { Outline, PinnedDefinition, StepOutline, StepType } from "./definition.ts";

/** Most steps of a workflow and of those that it calls, which count once for each call. */
export const MAX_STEPS = 10_000;

const TYPES: readonly StepType[] = [
  "andThen",
  "andWhen",
  "andAll",
  "andRace",
  "andTap",
  "andAgent",
  "andWorkflow",
  "bail",
];

export const stepType = (step: StepManifest): StepType => TYPES.find((type) => step[type] !== undefined)!;

/** Flattens a step, or a list that may contain lists, to consecutive steps. */
export function flattenSteps(steps: StepManifest | StepList): StepManifest[] {
  return Array.isArray(steps) ? steps.flatMap(flattenSteps) : [steps];
}

/** The lists of steps in a container step: branches of andWhen, andAll and andRace, without `onError` and sub-workflows. */
export function branchesIn(step: StepManifest): StepManifest[][] {
  const { andWhen: when, andAll, andRace } = step;
  if (when !== undefined) return [when.then, ...(when.else === undefined ? [] : [when.else])].map(flattenSteps);
  return (andAll ?? andRace ?? []).map(flattenSteps);
}

/** The steps of the `onError` of a step or a workflow. */
export const onErrorOf = ({ onError }: StepManifest | WorkflowManifest): StepManifest[] =>
  onError === undefined ? [] : flattenSteps(onError);

/** Every step of a workflow, including nested ones, but without those of the workflows that it calls. */
export function allSteps(workflow: WorkflowManifest): StepManifest[] {
  const withInner = (step: StepManifest): StepManifest[] => [
    step,
    ...[...branchesIn(step).flat(), ...onErrorOf(step)].flatMap(withInner),
  ];
  return [...flattenSteps(workflow.steps), ...onErrorOf(workflow)].flatMap(withInner);
}

/** The ids of the workflows that a workflow calls. */
export const workflowsCalled = (workflow: WorkflowManifest): string[] =>
  allSteps(workflow).flatMap(({ andWorkflow }) => andWorkflow?.workflow ?? []);

/**
 * Every step by its path, in the order of the manifest. Needs neither plugins nor the environment.
 *
 * @throws Error when there are more than `MAX_STEPS`
 */
export function outlineSteps(pinned: PinnedDefinition): Outline {
  const outline = new Map<StepPath, StepOutline>();
  /** The workflows around the current step. `checkReferences` refuses cycles; here they must not recurse forever. */
  const open: string[] = [pinned.workflowId];
  const add = (steps: readonly StepManifest[], within: Place, first = 0) => {
    const { prefix, parents, handles, top } = within;
    for (const [place, step] of steps.entries()) {
      if (outline.size >= MAX_STEPS) throw new Error(TOO_MANY_STEPS);
      const { id, name } = step;
      const path = `${prefix}${id}`;
      const index = top ?? first + place;
      const known = { path, id, name, type: stepType(step), index, order: outline.size, parents };
      outline.set(path, handles.length === 0 ? known : { ...known, handles });
      const inside = { ...within, parents: [...parents, path], top: index };
      for (const sequence of branchesIn(step)) add(sequence, inside);
      const called = step.andWorkflow?.workflow;
      if (called !== undefined && !open.includes(called) && Object.hasOwn(pinned.workflows, called)) {
        const calls = { workflowId: called, workflowName: pinned.workflows[called]!.name };
        outline.set(path, { ...outline.get(path)!, calls });
        open.push(called);
        addWorkflow(pinned.workflows[called]!, { ...inside, prefix: `${path}/` });
        open.pop();
      }
      // Not listed as inside the step, which has ended when they run.
      add(onErrorOf(step), { ...within, handles: [...handles, path], top: index });
    }
  };
  const addWorkflow = (workflow: WorkflowManifest, within: Place) => {
    const steps = flattenSteps(workflow.steps);
    add(steps, within);
    add(onErrorOf(workflow), { ...within, handles: [...within.handles, within.prefix] }, steps.length);
  };
  addWorkflow(pinned.workflows[pinned.workflowId]!, { prefix: "", parents: [], handles: [], top: null });
  return outline;
}

/** The position of a list of steps in the workflow. */
interface Place extends Required<Pick<StepOutline, "parents" | "handles">> {
  readonly prefix: string;
  /** The index of the top-level step that contains the list; null at the top. */
  readonly top: number | null;
}

const TOO_MANY_STEPS = `more than ${MAX_STEPS} steps, those of the workflows that it calls counted each time`;
