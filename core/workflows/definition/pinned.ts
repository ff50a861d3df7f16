/**
 * The definition that an execution is pinned to: its workflow and those that it calls, as JSON. It has references to the environment in
 * place of their values, so that no secret is stored. They are looked up when the definition is compiled.
 */
import { createHash } from "node:crypto";
import { type Environment, substitute } from "../../manifest/environment.ts";
import type { Path } from "../../manifest/issues.ts";
import type { LoadedManifest } from "../../manifest/load.ts";
import type { Manifest, WorkflowManifest } from "../../manifest/manifest.ts";
import type { PinnedDefinition } from "./definition.ts";
import { workflowsCalled } from "./outline.ts";

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
    for (const called of workflowsCalled(workflow)) add(called);
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
