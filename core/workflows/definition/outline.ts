/** Lists the steps of a workflow, including those of the workflows that it calls. */
import type { StepList, StepManifest, WorkflowManifest } from "../../manifest/manifest.ts";
import type { StepPath } from "../journal/entries.ts";
import type { Outline, StepOutline, StepType } from "./definition.ts";
import type { PinnedDefinition } from "./pinned.ts";

/** Counts the steps of a workflow and of those that it calls, once for each call. */
export const MAX_STEPS = 10_000;

const TYPES: readonly StepType[] = ["andThen", "andWhen", "andAll", "andRace", "andTap", "andAgent", "andWorkflow"];

export const stepType = (step: StepManifest): StepType => TYPES.find((type) => step[type] !== undefined)!;

/** A step, or a list with lists in it, as steps one after the other. */
export function flattenSteps(steps: StepManifest | StepList): StepManifest[] {
  return Array.isArray(steps) ? steps.flatMap(flattenSteps) : [steps];
}

/** The lists of steps in a container step: branches of andWhen, andAll and andRace. The steps of a sub-workflow are not among them. */
export function branchesIn(step: StepManifest): StepManifest[][] {
  const { andWhen: when, andAll, andRace } = step;
  if (when !== undefined) return [when.then, ...(when.else === undefined ? [] : [when.else])].map(flattenSteps);
  return (andAll ?? andRace ?? []).map(flattenSteps);
}

/** The ids of the workflows that a workflow calls. */
export function workflowsCalled(workflow: WorkflowManifest): string[] {
  const called = (step: StepManifest): string[] => {
    if (step.andWorkflow !== undefined) return [step.andWorkflow.workflow];
    return branchesIn(step).flat().flatMap(called);
  };
  return flattenSteps(workflow.steps).flatMap(called);
}

/**
 * Every step by its path, in the order of the manifest. Needs neither plugins nor the environment.
 *
 * @throws Error when there are more than MOST_STEPS
 */
export function outlineSteps(pinned: PinnedDefinition): Outline {
  const outline = new Map<StepPath, StepOutline>();
  /** The workflows around the current steps. One that calls itself is refused by checkReferences; here it must not recurse forever. */
  const open: string[] = [pinned.workflowId];
  const add = (steps: readonly StepManifest[], prefix: string, parents: readonly StepPath[], top: number | null) => {
    for (const [place, step] of steps.entries()) {
      if (outline.size >= MAX_STEPS) throw new Error(TOO_MANY_STEPS);
      const { id, name } = step;
      const path = `${prefix}${id}`;
      const index = top ?? place;
      const known = { path, id, name, type: stepType(step), index, order: outline.size, parents };
      outline.set(path, known);
      const within = [...parents, path];
      for (const sequence of branchesIn(step)) add(sequence, prefix, within, index);
      const called = step.andWorkflow?.workflow;
      if (called === undefined || open.includes(called) || !Object.hasOwn(pinned.workflows, called)) continue;
      outline.set(path, { ...known, calls: { workflowId: called, workflowName: pinned.workflows[called]!.name } });
      open.push(called);
      add(flattenSteps(pinned.workflows[called]!.steps), `${path}/`, within, index);
      open.pop();
    }
  };
  add(flattenSteps(pinned.workflows[pinned.workflowId]!.steps), "", [], null);
  return outline;
}

const TOO_MANY_STEPS = `more than ${MAX_STEPS} steps, those of the workflows that it calls counted each time`;
