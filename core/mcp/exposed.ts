/** Tools, agents and workflows as tools of an MCP server: how they are described, and which row of the API runs them. */
import type {
  ExecutionResult,
  McpAgentRequest,
  McpCallResult,
  McpResumeRequest,
  McpTool,
  McpWorkflowRequest,
  TextResult,
  ToolExecutionResult,
} from "../../generated/types.ts";
import { validators } from "../../generated/validators.js";
import { toMcp } from "../agents/prompt/results.ts";
import { unfinished } from "../agents/run/usage.ts";
import type { Validator } from "../http/decode.ts";
import type { InputSchemaId } from "../http/route.ts";
import { invalid } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { describeProblems, type JsonSchema } from "../lib/json-schema.ts";
import type { AgentManifest, StepManifest, WorkflowManifest } from "../manifest/manifest.ts";
import { agentToolName, exposedName, resumeToolName, workflowToolName } from "../manifest/mcp-names.ts";
import { isContent } from "../tools/content.ts";
import type { Tool } from "../tools/tool.ts";
import { allSteps } from "../workflows/definition/pinned.ts";

/* JSON Schemas of the arguments with which MCP clients call agents and workflows, written for models to read. */

const CONVERSATION = { type: "string", minLength: 1, maxLength: 256 };
/** Without the lookaround that the API checks ids with: many providers refuse a tool that has one. */
const EXECUTION = { type: "string", pattern: "^[A-Za-z0-9_.:-]{1,128}$" };

const agentSchema = (): JsonSchema => ({
  type: "object",
  properties: {
    prompt: { type: "string", description: "What the agent is asked." },
    context: { type: "object", description: "What the agent may adapt itself to." },
    conversationId: { ...CONVERSATION, description: "The conversation to continue or to begin." },
  },
  required: ["prompt"],
});

const workflowSchema = ({ input }: WorkflowManifest): JsonSchema => ({
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

const resumeSchema = (workflow: WorkflowManifest): JsonSchema => ({
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

/* Turns results into results of MCP: text for models, and the object itself for programs. */

/** A text stays a text, content is content, anything else is JSON. */
function toolResult({ result }: ToolExecutionResult): McpCallResult {
  if (isContent(result)) {
    const { value, structuredContent } = result;
    return { content: value.map(toMcp), ...(structuredContent && { structuredContent }) };
  }
  const text = typeof result === "string" ? result : JSON.stringify(result);
  return withStructure([text], result);
}

/** An answer that is not whole is an error, with what the agent has said. For a run that waits, a second text says for what. */
function agentResult(id: string, result: TextResult): McpCallResult {
  const { runId, approvals = [] } = result;
  if (runId !== undefined) {
    const ids = approvals.map(({ approvalId, toolName }) => `${approvalId} (${toolName})`).join(", ");
    const waits = `Run ${runId} waits for a person to answer approval ${ids}. It goes on by itself then.`;
    return withStructure(result.text === "" ? [waits] : [result.text, waits], result);
  }
  const problem = unfinished(id, result.finishReason);
  if (problem === null) return withStructure([result.text], result);
  return { ...withStructure([problem, result.text], result), isError: true };
}

/** For a suspended execution, a second text says how to resume it. */
function executionResult(result: ExecutionResult, resumeTool: string): McpCallResult {
  const texts = [JSON.stringify(result)];
  const { executionId, status, suspension } = result;
  if (status === "suspended") {
    const call = JSON.stringify({ executionId, resumeData: "..." });
    texts.push(`The workflow waits: ${suspension?.reason ?? ""}\nTo go on, call ${resumeTool} with ${call}.`);
  }
  return withStructure(texts, result);
}

function withStructure(texts: readonly string[], value: unknown): McpCallResult {
  const content = texts.map((text) => ({ type: "text" as const, text }));
  return isObject(value) ? { content, structuredContent: value as Record<string, unknown> } : { content };
}

/** The input of an operation of the API, as in a request. */
interface Planned {
  operation: string;
  params: Record<string, string>;
  body: unknown;
}

export interface Exposed {
  readonly name: string;
  readonly type: McpTool["type"];
  /** A function, because the schema of an imported tool changes with its server. */
  definition(): McpTool["definition"];
  /**
   * What runs it.
   *
   * @param context of the request, for arguments that have none
   * @throws ServiceError `invalid_input`
   */
  plan(given: Record<string, unknown>, context: Record<string, unknown> | undefined): Planned;
  /** @param data what the operation replied */
  present(data: unknown): McpCallResult;
}

export function exposeTool(tool: Tool): Exposed {
  const name = exposedName(tool.name);
  return {
    name,
    type: "tool",
    definition() {
      const { description, parameters, shown } = tool;
      return { name, description: description || name, inputSchema: { ...parameters, type: "object" }, ...shown };
    },
    plan: (input, context) => ({ operation: "tools.execute", params: { name: tool.name }, body: { input, context } }),
    present: (data) => toolResult(data as ToolExecutionResult),
  };
}

export function exposeAgent(id: string, agent: Pick<AgentManifest, "name" | "description">): Exposed {
  const name = agentToolName(id);
  const definition = { name, description: agent.description || agent.name || id, inputSchema: agentSchema() };
  return {
    name,
    type: "agent",
    definition: () => definition,
    plan(given, context) {
      const { prompt, conversationId, context: own = context } = checked<McpAgentRequest>("McpAgentRequest", given);
      const options = { context: own, memory: conversationId === undefined ? undefined : { conversationId } };
      return { operation: "agents.generateAlone", params: { id }, body: { input: prompt, options } };
    },
    present: (data) => agentResult(id, data as TextResult),
  };
}

/** The workflow, and what resumes it. */
export function exposeWorkflow(id: string, workflow: WorkflowManifest): Exposed[] {
  const name = workflowToolName(id);
  const resume = resumeToolName(id);
  const purpose = workflow.purpose || workflow.name || id;
  const begin = { name, description: purpose, inputSchema: workflowSchema(workflow) };
  const goOn = {
    name: resume,
    description: `Resumes a suspended execution of ${name} (${purpose}).`,
    inputSchema: resumeSchema(workflow),
  };
  const present = (data: unknown) => executionResult(data as ExecutionResult, resume);
  return [
    {
      name,
      type: "workflow",
      definition: () => begin,
      plan(given, context) {
        const { input, options = {} } = checked<McpWorkflowRequest>("McpWorkflowRequest", given);
        const body = { input, options: { context, ...options } };
        return { operation: "workflows.execute", params: { id }, body };
      },
      present,
    },
    {
      name: resume,
      type: "workflow",
      definition: () => goOn,
      plan(given) {
        const { executionId, resumeData, stepId } = checked<McpResumeRequest>("McpResumeRequest", given);
        const body = { resumeData, options: stepId === undefined ? undefined : { stepId } };
        return { operation: "workflows.resume", params: { id, executionId }, body };
      },
      present,
    },
  ];
}

function checked<T>(schema: InputSchemaId, given: unknown): T {
  const check = validators[schema] as Validator;
  if (!check(given)) throw invalid(describeProblems(check.errors, "arguments"));
  return given as T;
}
