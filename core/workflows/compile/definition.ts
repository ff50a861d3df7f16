/** Compiles a pinned definition: names become plugins, tools and agents, expressions become functions. */
import { messageOf } from "../../lib/errors.ts";
import type { Problem } from "../../lib/problem.ts";
import { SCOPES } from "../../manifest/expression.ts";
import type { Outline, PinnedDefinition, WorkflowDefinition } from "../definition/definition.ts";
import { compileCheck, type LinkContext, type LinkedParts } from "../definition/linking.ts";
import { outlineSteps } from "../definition/outline.ts";
import { hashDefinition, reveal } from "../definition/pinned.ts";
import { compileWorkflowSteps } from "./steps.ts";

const DEFAULT_RECOVERIES = 3;

type CompiledDefinition =
  | { definition: WorkflowDefinition }
  /** `missing`: names in the definition that do not exist here: `step plugin "x"`, `environment variable "TOKEN"`. */
  | { problems: Problem[]; missing: string[] };

export function compileDefinition(pinned: PinnedDefinition, parts: LinkedParts): CompiledDefinition {
  const { workflowId } = pinned;
  const at = ["workflows", workflowId];
  let outline: Outline;
  try {
    outline = outlineSteps(pinned);
  } catch (error) {
    return { problems: [{ path: at, message: messageOf(error) }], missing: [] };
  }
  const revealed = reveal(pinned, parts.env, parts.folder);
  const { workflows } = revealed.pinned;
  const linking: LinkContext = {
    parts,
    workflows,
    checks: new Map(),
    works: new Map(),
    problems: [],
    missing: new Set(revealed.missing),
  };
  const workflow = workflows[workflowId]!;
  const steps = compileWorkflowSteps({
    linking,
    workflow,
    prefix: "",
    open: [workflowId],
    names: SCOPES.workflow,
    // The checks of the outermost workflow are in the definition itself.
    suspendCheck: null,
    resumeCheck: null,
  });
  const definition: WorkflowDefinition = {
    workflowId,
    name: workflow.name,
    hash: hashDefinition(JSON.stringify(pinned)),
    outline,
    ...steps,
    inputCheck: compileCheck(linking, workflow.input, [...at, "input"]),
    resultCheck: compileCheck(linking, workflow.result, [...at, "result"]),
    suspendCheck: compileCheck(linking, workflow.suspend, [...at, "suspend"]),
    resumeCheck: compileCheck(linking, workflow.resume, [...at, "resume"]),
    timeout: workflow.timeout ?? null,
    recovery: workflow.recovery,
    // Definitions that earlier versions have stored lack this key.
    recoveries: workflow.recoveries ?? DEFAULT_RECOVERIES,
    meter: parts.meters?.of(workflowId),
    uses: parts.uses,
  };
  const { problems, missing } = linking;
  return problems.length > 0 || missing.size > 0 ? { problems, missing: [...missing] } : { definition };
}
