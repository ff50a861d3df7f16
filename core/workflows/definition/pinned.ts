/**
 * The definition that an execution is pinned to: its workflow and all that this one calls, as JSON. What came from the
 * environment is not in it but the reference to it, so that no secret is stored, and is looked up when it is compiled.
 */
import { createHash } from "node:crypto";
import { type Environment, substitute } from "../../manifest/environment.ts";
import type { Path } from "../../manifest/issues.ts";
import type { LoadedManifest } from "../../manifest/load.ts";
import type { Manifest, WorkflowManifest } from "../../manifest/manifest.ts";
import { workflowsCalled } from "./outline.ts";

export interface PinnedDefinition {
  readonly workflowId: string;
  /**
   * By id; durations are milliseconds. Where a text refers to the environment stands `{"$env": "Bearer ${TOKEN}"}`, and
   * `{"$as": {...}}` where the manifest itself has an object with such a key.
   */
  readonly workflows: Readonly<Record<string, WorkflowManifest>>;
}

export interface Pinned {
  readonly hash: string;
  /** The definition as JSON. */
  readonly text: string;
  readonly pinned: PinnedDefinition;
}

/** @param manifest a workflow that is called and is not in it is left out */
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
  // Read back from the text, so that it is what it will be after a restart.
  return { hash: hashDefinition(text), text, pinned: parsePinned(text) };
}

export const parsePinned = (text: string): PinnedDefinition => JSON.parse(text) as PinnedDefinition;

/** Names a definition by what is in it. @param text JSON, as `pin` gave it */
export const hashDefinition = (text: string): string =>
  createHash("sha256").update(text).digest("base64url").slice(0, 22);

const REFERENCE = "$env";
const ESCAPE = "$as";

/** Keys of workflows and steps that hold more of the same; below the others lies what the user thought up. */
const STRUCTURE = /^(steps|and[A-Z][a-z]+|then|else|retry)$/;
/** Names that the API shows anyway, and by which plugins, tools and agents are found. */
const NAMES = /^(id|name|purpose|use|tool|agent|workflow)$/;
/** Is no part of what is executed: how long executions are kept, and the user's own notes. */
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
  /** What the environment no longer has: `environment variable "TOKEN"`, `file "/run/secrets/x"`. */
  missing: string[];
}

/** Fills in what the environment has now. @param folder what relative paths of files start from */
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
    for (const { message } of problems) missing.add(nameOf(message));
    return value;
  };
  return { pinned: fill(pinned) as PinnedDefinition, missing: [...missing] };
}

/** What a problem of `substitute` is about. */
function nameOf(message: string): string {
  const [, file] = /^\$\{file:([^}]*)\}/.exec(message) ?? [];
  if (file !== undefined) return `file ${JSON.stringify(file)}`;
  const [, variable] = /^the environment variable (\w+)/.exec(message) ?? [];
  return variable === undefined ? message : `environment variable ${JSON.stringify(variable)}`;
}
