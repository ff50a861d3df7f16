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
import type { Validator } from "../http/decode.ts";
import type { InputSchemaId } from "../http/route.ts";
import { invalid } from "../lib/errors.ts";
import { describeProblems } from "../lib/json-schema.ts";
import type { AgentManifest, WorkflowManifest } from "../manifest/manifest.ts";
import { agentToolName, exposedName, resumeToolName, workflowToolName } from "../manifest/mcp-names.ts";
import type { Tool } from "../tools/tool.ts";
import { agentResult, executionResult, toolResult } from "./call-result.ts";
import { agentSchema, resumeSchema, workflowSchema } from "./input-schemas.ts";

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
