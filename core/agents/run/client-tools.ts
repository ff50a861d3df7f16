/** Tools that a request brings: the client runs them, and posts their results with its next request. */
import { type ClientSchema, foreignSchema, type PrepareSchema } from "../../client-schema/schemas.ts";
import { invalid, messageOf } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import type { RunCall } from "./caller.ts";
import { schemaRateKey } from "./output.ts";
import { type AgentTool, functionTool, type ToolSet, toolSet } from "./tool-set.ts";

export interface ClientTool {
  readonly name: string;
  readonly description?: string | undefined;
  /** JSON Schema of its input. Default: any object. */
  readonly parameters?: unknown;
  readonly strict?: boolean | undefined;
  /** Where it stands in the request; default: by its place in the list. */
  readonly path?: string;
}

export interface ClientTools {
  /** Where they stand in the request, for messages: `tools`. */
  readonly field: string;
  readonly list: readonly ClientTool[];
}

/**
 * The tools of a run and those of its client. A tool of the manifest that the client runs anyway keeps its own definition.
 *
 * @throws ServiceError `invalid_input` for a name that is taken, and for parameters that are no object
 */
export function withClientTools(
  own: ToolSet,
  { field, list }: ClientTools,
  { prepareSchema }: { readonly prepareSchema: PrepareSchema },
  call: RunCall,
): ToolSet {
  const added = new Map<string, AgentTool>();
  for (const [index, { name, description = "", parameters = {}, strict, path: place }] of list.entries()) {
    const path = place ?? `${field}[${index}]`;
    const known = own.byName.get(name);
    if (known?.clientInput !== undefined) continue;
    const shown = JSON.stringify(name.slice(0, MAX_NAME));
    if (known !== undefined) throw invalid(`${path}.name: the agent has a tool ${shown} of its own`);
    if (added.has(name)) throw invalid(`${path}.name: ${shown} is there twice`);
    if (!isObject(parameters)) throw invalid(`${path}.parameters must be object`);
    // A schema that says nothing of the type is one of an object: models give nothing else.
    const schema = foreignSchema(
      prepareSchema,
      call.logger,
      name.slice(0, MAX_NAME),
      { type: "object", ...parameters },
      `${path}.parameters`,
      schemaRateKey(call),
    );
    const described = functionTool(name, description, schema.schema);
    const definition = strict === undefined ? described : { ...described, strict };
    const clientInput = (input: unknown) => problemOf(schema, input);
    const run = (input: unknown) => {
      throw invalid(clientInput(input) ?? `tool ${shown} runs in the client`);
    };
    added.set(name, { name, definition, clientInput, run });
  }
  return added.size === 0 ? own : toolSet([...own.byName.values(), ...added.values()]);
}

/** Of a name in an error: clients choose how long they are. */
const MAX_NAME = 128;

/** An input that takes too much work to check is no input: the model is told so. */
function problemOf(schema: ClientSchema, input: unknown): string | null {
  try {
    return schema.problems(input);
  } catch (error) {
    return messageOf(error);
  }
}
