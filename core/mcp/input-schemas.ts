/** JSON Schemas of the arguments with which MCP clients call agents and workflows, written for models to read. */
import type { JsonSchema } from "../lib/json-schema.ts";
import type { StepManifest, WorkflowManifest } from "../manifest/manifest.ts";
import { allSteps } from "../workflows/definition/pinned.ts";

const CONVERSATION = { type: "string", minLength: 1, maxLength: 256 };
/** Without the lookaround that the API checks ids with: many providers refuse a tool that has one. */
const EXECUTION = { type: "string", pattern: "^[A-Za-z0-9_.:-]{1,128}$" };

export const agentSchema = (): JsonSchema => ({
  type: "object",
  properties: {
    prompt: { type: "string", description: "What the agent is asked." },
    context: { type: "object", description: "What the agent may adapt itself to." },
    conversationId: { ...CONVERSATION, description: "The conversation to continue or to begin." },
  },
  required: ["prompt"],
});

export const workflowSchema = ({ input }: WorkflowManifest): JsonSchema => ({
  type: "object",
  properties: {
    input: nested(input ?? { description: "Input of the workflow." }, "#/properties/input"),
    options: {
      type: "object",
      properties: {
        executionId: { ...EXECUTION, description: "Id of the execution. Left out: the server makes one." },
        conversationId: { ...CONVERSATION, description: "The conversation of the agents that it runs." },
        context: { type: "object", description: "What its expressions see as `context`." },
        workflowState: { type: "object", description: "Shared state at the beginning." },
        metadata: { type: "object", description: "Kept with the execution." },
      },
    },
  },
  required: ["input"],
});

export const resumeSchema = (workflow: WorkflowManifest): JsonSchema => ({
  type: "object",
  properties: {
    executionId: { ...EXECUTION, description: "The suspended execution, as the tool that began it named it." },
    resumeData: nested(resumeDataSchema(workflow), "#/properties/resumeData"),
    stepId: { type: "string", description: "The step to go on from. Left out: the one that waits." },
  },
  required: ["executionId"],
});

/** A step may have a resume schema of its own, and steps of a sub-workflow do not use that of the workflow that calls it. */
function resumeDataSchema(workflow: WorkflowManifest): object {
  const { resume } = workflow;
  const special = ({ resumeSchema, andWorkflow }: StepManifest) =>
    resumeSchema !== undefined || andWorkflow !== undefined;
  const anything = { description: "What the waiting step is given." };
  return resume === undefined || allSteps(workflow).some(special) ? anything : resume;
}

/** A schema inside another one: its references to itself (`#`) are changed to its new place. */
function nested(schema: object, place: string): object {
  return JSON.parse(JSON.stringify(schema), (key, value) =>
    (key === "$ref" || key === "$dynamicRef") && typeof value === "string" && /^#(?:\/|$)/.test(value)
      ? place + value.slice(1)
      : value,
  );
}
