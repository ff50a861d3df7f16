/** Pins and compiles the workflows of the manifest. */
import type { Problem } from "../../lib/problem.ts";
import type { LoadedManifest } from "../../manifest/load.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import type { WorkflowDefinition } from "../definition/definition.ts";
import type { LinkedParts } from "../definition/linking.ts";
import { type Pinned, pin } from "../definition/pinned.ts";
import { compileDefinition } from "./definition.ts";

export interface CompiledWorkflow extends Pinned {
  readonly definition: WorkflowDefinition;
}

interface CompiledWorkflows {
  /** Workflows by id, in the order of the manifest. */
  workflows: Map<string, CompiledWorkflow>;
  problems: Problem[];
}

/**
 * Leaves out, without a problem, workflows that name something which does not exist: `checkReferences` reports it.
 *
 * @param manifest the whole manifest, or the valid part of it
 */
export function compileWorkflows(
  manifest: Pick<Manifest, "workflows">,
  loaded: Pick<LoadedManifest, "referenceAt">,
  parts: LinkedParts,
): CompiledWorkflows {
  const workflows = new Map<string, CompiledWorkflow>();
  const problems = new Map<string, Problem>();
  for (const id of Object.keys(manifest.workflows)) {
    const pinned = pin(id, manifest, loaded);
    const compiled = compileDefinition(pinned.pinned, parts);
    if ("definition" in compiled) {
      const { definition } = compiled;
      workflows.set(id, { ...pinned, definition });
      definition.meter?.steps.declare(definition.outline.keys());
    }
    // A workflow that others call is compiled once with each of them, so problems are deduplicated.
    else for (const problem of compiled.problems) problems.set(JSON.stringify(problem), problem);
  }
  return { workflows, problems: [...problems.values()] };
}
