/** Runs an operation of the routes table in the process, for the caller of another route. */
import type { Schemas } from "../../../generated/types.ts";
import { validators } from "../../../generated/validators.js";
import type { GenerateBody } from "../../agents/run-requests.ts";
import type { Service } from "../../app/service.ts";
import { parseBody, requireValid, type Validator } from "../../http/decode.ts";
import type { Context, InputSchemaId, Route } from "../../http/route.ts";
import { invalid } from "../../lib/errors.ts";
import { Serialized } from "../../lib/serialized.ts";
import { AGENT_ROUTES, findAgent } from "./agents.ts";
import { memoryNamed, memoryRoutes } from "./memory.ts";
import { TOOL_ROUTES } from "./tools.ts";
import { WORKFLOW_ROUTES } from "./workflows.ts";

/** For callers that cannot answer for a person. */
const GENERATE_ALONE: Route<Service> = {
  ...(AGENT_ROUTES.find(({ operation }) => operation === "agents.generateText") as Route<Service>),
  operation: "agents.generateAlone",
  handle: ({ params, body }, call) =>
    findAgent(call.service, params.id!).generateText(body as GenerateBody, call, false),
};

/** Rows by operation. For the memory rows, `agentId` is the name of the memory here. */
const ROWS: ReadonlyMap<string, Route<Service>> = new Map(
  [...AGENT_ROUTES, GENERATE_ALONE, ...TOOL_ROUTES, ...WORKFLOW_ROUTES, ...memoryRoutes(memoryNamed)].map((row) => [
    row.operation,
    row,
  ]),
);

export interface PerformInput {
  params?: Record<string, string>;
  query?: object | undefined;
  body?: unknown;
}

/**
 * Validates the input as the pipeline validates a request, and resolves to `data` of the reply. Input and output are copies, as over
 * the network: neither side sees later changes of the other.
 *
 * @param operation of a row with a single reply, not a stream
 */
export async function perform<K extends keyof Schemas>(
  call: Context<Service>,
  operation: string,
  { params = {}, query = {}, body }: PerformInput = {},
): Promise<Schemas[K]> {
  const row = ROWS.get(operation)!;
  for (const [name, value] of Object.entries(params)) requireText(name, value);
  const input = { params, query: checked(row.query, query), body: checked(row.body, body) };
  const result = await row.handle(input as never, call);
  return JSON.parse(result instanceof Serialized ? await result.whole() : JSON.stringify(result ?? null));
}

/** Throws unless a path parameter is a non-empty string. */
function requireText(name: string, value: unknown): void {
  if (typeof value !== "string" || value === "") throw invalid(`${name} must be a string that is not empty`);
}

function checked(schema: InputSchemaId | undefined, value: unknown): unknown {
  if (schema === undefined) return undefined;
  const copy = parseBody(Buffer.from(toJsonText(value)));
  requireValid(validators[schema] as Validator, copy);
  return copy;
}

function toJsonText(value: unknown): string {
  try {
    return JSON.stringify(value) ?? "null";
  } catch (cause) {
    throw invalid("the input of the operation is not JSON", { cause });
  }
}
