/** Workflows as `GET /workflows` and `GET /workflows/:id` show them. Everything but the status is known at boot. */
import type {
  StepManifest,
  WorkflowDetail,
  WorkflowManifest,
  WorkflowStatus,
  WorkflowStep,
  WorkflowSummary,
} from "../../../generated/types.ts";
import { branchesIn, flattenSteps, onErrorOf, stepType } from "./pinned.ts";

export interface DescribedWorkflow {
  summary(status: WorkflowStatus): WorkflowSummary;
  detail(status: WorkflowStatus): WorkflowDetail;
}

export function describeWorkflow(id: string, workflow: WorkflowManifest): DescribedWorkflow {
  const { name, purpose, input = null, result = null, suspend = null, resume = null } = workflow;
  const steps = flattenSteps(workflow.steps).map(describeStep);
  const onError = workflow.onError === undefined ? {} : { onError: onErrorOf(workflow).map(describeStep) };
  const head = { id, name: name || id, purpose, stepsCount: steps.length };
  const schemas = { inputSchema: input, resultSchema: result, suspendSchema: suspend, resumeSchema: resume };
  return {
    summary: (status) => ({ ...head, status }),
    detail: (status) => ({ ...head, status, steps, ...onError, ...schemas }),
  };
}

const SCHEMAS = ["inputSchema", "outputSchema", "suspendSchema", "resumeSchema"] as const;

/** A nested list of steps has no id of its own: its steps are shown in its place. */
function describeStep(step: StepManifest): WorkflowStep {
  const { id, name, purpose } = step;
  const described: WorkflowStep = { id, name: name || id, type: stepType(step), purpose };
  for (const schema of SCHEMAS) if (step[schema] !== undefined) described[schema] = step[schema];
  const branches = branchesIn(step);
  if (branches.length > 0) {
    described.steps = branches.flat().map(describeStep);
    described.branches = branches.map((branch) => branch.map((inner) => inner.id));
  }
  if (step.onError !== undefined) described.onError = onErrorOf(step).map(describeStep);
  if (step.andWorkflow !== undefined) described.workflow = step.andWorkflow.workflow;
  return described;
}
