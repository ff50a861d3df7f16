/** The form of a result: plain text, or a value that fits a schema, read from what the model wrote. */

import type { LanguageModelV3CallOptions } from "@ai-sdk/provider";
import type { OutputOptions } from "../../../generated/types.ts";
import type { ClientSchema } from "../../client-schema/schemas.ts";
import { userIdOf } from "../../identity/user.ts";
import { isObject } from "../../lib/is-object.ts";
import type { RunCall } from "../agent.ts";
import type { AgentCore } from "./compiled-agent.ts";
import { parseAnswer } from "./partial-json.ts";

export interface OutputSpec {
  /** What the model is told. */
  readonly format: LanguageModelV3CallOptions["responseFormat"];
  /** The schema as text, for a model that does not heed `format`; empty when there is none. */
  readonly schemaText: string;
  /** The value of a finished answer, or what is wrong with it. */
  read(text: string): { value: unknown } | { problem: string };
}

const TEXT: OutputSpec = Object.freeze({
  format: undefined,
  schemaText: "",
  read: (text: string) => ({ value: text }),
});

/** Of a value that fits the schema, or of any object without one. */
export function objectOutput(schema: ClientSchema | undefined): OutputSpec {
  return {
    format: schema === undefined ? { type: "json" } : { type: "json", schema: schema.schema },
    schemaText: schema === undefined ? "" : JSON.stringify(schema.schema),
    read(text) {
      const value = parseAnswer(text);
      if (value === undefined) return { problem: "it is not JSON" };
      const problem = schema === undefined ? objectProblem(value) : schema.problems(value);
      return problem === null ? { value } : { problem };
    },
  };
}

function objectProblem(value: unknown): string | null {
  return isObject(value) ? null : "result must be object";
}

/** `options.output` of a request. */
export function outputOption(
  output: OutputOptions | undefined,
  { prepareSchema, defaults }: Pick<AgentCore, "prepareSchema" | "defaults">,
  call: RunCall,
): OutputSpec | null {
  if (output === undefined) return null;
  if (output.type === "text") return TEXT;
  // That of the agent itself is no client's.
  const payer = output === defaults.output ? undefined : payerOf(call);
  return objectOutput(
    output.schema === undefined ? undefined : prepareSchema(output.schema, "options.output.schema", payer),
  );
}

/** Who pays for a new schema of a request; nobody for what the service asks of itself. */
export function payerOf({ user, client }: RunCall): string | undefined {
  const id = userIdOf(user);
  if (id !== null) return `user ${id}`;
  return client === undefined ? undefined : `address ${client.address}`;
}
