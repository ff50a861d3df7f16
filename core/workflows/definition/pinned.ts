/**
 * The definition that an execution is pinned to: its workflow and those that it calls, as JSON. It has references to the environment in
 * place of their values, so that no secret is stored. They are looked up when the definition is compiled.
 */
import { createHash } from "node:crypto";
import { type Environment, substitute } from "../../manifest/environment.ts";
import type { LoadedManifest } from "../../manifest/load.ts";
import type { Manifest, Path, StepList, StepManifest, WorkflowManifest } from "../../manifest/manifest.ts";
import type { StepPath } from "../journal/entries.ts";
import type { Outline, PinnedDefinition, StepOutline, StepType } from "./definition.ts";

// Lists the steps of a workflow, including those of the workflows that it calls.

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

export interface Pinned {
  readonly hash: string;
  /** The definition as JSON. */
  readonly text: string;
  readonly pinned: PinnedDefinition;
}

/** @param manifest provides the workflows; called ones that it does not have are left out */
export function pin(
  workflowId: string,
  manifest: Pick<Manifest, "workflows">,
  loaded: Pick<LoadedManifest, "referenceAt">,
): Pinned {
  const workflows: Record<string, WorkflowManifest> = {};
  const add = (id: string): void => {
    const workflow = Object.hasOwn(manifest.workflows, id) ? manifest.workflows[id] : undefined;
    if (workflow === undefined || Object.hasOwn(workflows, id)) return;
    workflows[id] = conceal(workflow, ["workflows", id], true, loaded.referenceAt) as WorkflowManifest;
    for (const called of allSteps(workflow).flatMap(({ andWorkflow }) => andWorkflow?.workflow ?? [])) add(called);
  };
  add(workflowId);
  const text = JSON.stringify({ workflowId, workflows });
  // Parsed from the text, so that it is exactly what a restart will read.
  return { hash: hashDefinition(text), text, pinned: parsePinned(text) };
}

export const parsePinned = (text: string): PinnedDefinition => JSON.parse(text) as PinnedDefinition;

/** @param text the JSON that `pin` returns */
export const hashDefinition = (text: string): string =>
  createHash("sha256").update(text).digest("base64url").slice(0, 22);

const REFERENCE = "$env";
const ESCAPE = "$as";

/** Keys of workflows and steps that contain nested parts; objects under other keys have keys of the user's choice. */
const STRUCTURE = /^(steps|and[A-Z][a-z]+|bail|then|else|onError|retry)$/;
/** Keys whose texts are stored unchanged: the API shows them anyway, or they are the names of plugins, tools and agents. */
const NAMES = /^(id|name|purpose|use|tool|agent|workflow)$/;
/** Keys that do not affect the execution: retention and the user's notes. */
const LEFT_OUT = /^(retention|x-.*)$/;

function conceal(value: unknown, path: Path, structural: boolean, referenceAt: LoadedManifest["referenceAt"]): unknown {
  if (typeof value === "string") {
    const reference = referenceAt(path);
    return reference === undefined ? value : { [REFERENCE]: reference };
  }
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((item, index) => conceal(item, [...path, index], structural, referenceAt));
  const entries = Object.entries(value)
    .filter(([key]) => !(structural && LEFT_OUT.test(key)))
    .map(([key, item]) => {
      if (structural && NAMES.test(key)) return [key, item];
      return [key, conceal(item, [...path, key], structural && STRUCTURE.test(key), referenceAt)];
    });
  const copy = Object.fromEntries(entries) as Record<string, unknown>;
  return Object.hasOwn(copy, REFERENCE) || Object.hasOwn(copy, ESCAPE) ? { [ESCAPE]: copy } : copy;
}

interface Revealed {
  pinned: PinnedDefinition;
  /** References that cannot be resolved any more: `environment variable "TOKEN"`, `file "/run/secrets/x"`. */
  missing: string[];
}

/**
 * Replaces the references with the current values of the environment.
 *
 * @param folder which relative paths of files start from
 */
export function reveal(pinned: PinnedDefinition, env: Environment, folder: string): Revealed {
  const missing = new Set<string>();
  const fill = (value: unknown): unknown => {
    if (typeof value !== "object" || value === null) return value;
    if (Array.isArray(value)) return value.map(fill);
    const { [REFERENCE]: reference, [ESCAPE]: escaped } = value as Record<string, unknown>;
    if (typeof reference === "string") return lookUp(reference);
    return Object.fromEntries(Object.entries(escaped ?? value).map(([key, item]) => [key, fill(item)]));
  };
  const lookUp = (text: string): unknown => {
    const { value, problems } = substitute(text, env, folder);
    for (const { message } of problems) missing.add(missingName(message));
    return value;
  };
  return { pinned: fill(pinned) as PinnedDefinition, missing: [...missing] };
}

/** The file or variable that a problem of `substitute` is about. */
function missingName(message: string): string {
  const [, file] = /^\$\{file:([^}]*)\}/.exec(message) ?? [];
  if (file !== undefined) return `file ${JSON.stringify(file)}`;
  const [, variable] = /^the environment variable (\w+)/.exec(message) ?? [];
  return variable === undefined ? message : `environment variable ${JSON.stringify(variable)}`;
}
