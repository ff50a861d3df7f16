/** What form a result has, plain text or a value of a schema, and how it is read from what the model wrote. */
import type { LanguageModelV3CallOptions } from "@ai-sdk/provider";
import type { OutputOptions } from "../../../generated/types.ts";
import type { ClientSchema, PrepareSchema } from "../../client-schema/schemas.ts";
import { userIdOf } from "../../identity/user.ts";
import { isObject } from "../../lib/is-object.ts";
import type { RunCall } from "./caller.ts";
import type { RunSettings } from "./options.ts";
import { answersIn, type Bracket } from "./partial-json.ts";

/** Of a protocol: the answer must be JSON, valid against the schema if there is one. */
export interface JsonAnswer {
  readonly schema: object | undefined;
  /** Where that stands in the request. */
  readonly field: string;
}

/** The agent whose output it is. */
interface OutputAgent {
  readonly prepareSchema: PrepareSchema;
  readonly defaults: RunSettings;
}

export interface OutputSpec {
  /** What the provider is asked for. */
  readonly format: LanguageModelV3CallOptions["responseFormat"];
  /** The schema as text, for models that ignore `format`; empty when there is none. */
  readonly schemaText: string;
  /** What the JSON of the value begins with, if that is known. */
  readonly bracket?: Bracket | undefined;
  /** Parses a finished answer: its value, or what is wrong with it. */
  read(text: string): { value: unknown } | { problem: string };
}

const TEXT: OutputSpec = Object.freeze({
  format: undefined,
  schemaText: "",
  read: (text: string) => ({ value: text }),
});

/** A value that is valid against the schema, or any object without one. */
export function objectOutput(schema: ClientSchema | undefined): OutputSpec {
  const bracket = schema === undefined ? "{" : bracketOf(schema.schema);
  return {
    format: schema === undefined ? { type: "json" } : { type: "json", schema: schema.schema },
    schemaText: schema === undefined ? "" : JSON.stringify(schema.schema),
    bracket,
    read(text) {
      let first: string | null = null;
      for (const value of answersIn(text, bracket)) {
        const problem = schema === undefined ? objectProblem(value) : schema.problems(value);
        if (problem === null) return { value };
        first ??= problem;
      }
      return { problem: first ?? "it is not JSON" };
    },
  };
}

/** The result that a protocol asks for; undefined: text. */
export const jsonOutput = (
  { prepareSchema }: OutputAgent,
  json: JsonAnswer | undefined,
  call: RunCall,
): OutputSpec | undefined =>
  json && objectOutput(json.schema && prepareSchema(json.schema, json.field, schemaRateKey(call)));

const BRACKETS: ReadonlyMap<unknown, Bracket> = new Map([
  ["object", "{"],
  ["array", "["],
]);

const bracketOf = (schema: { type?: unknown }): Bracket | undefined => BRACKETS.get(schema.type);

function objectProblem(value: unknown): string | null {
  return isObject(value) ? null : "result must be object";
}

/** `options.output` of a request. */
export function resolveOutput(
  output: OutputOptions | undefined,
  { prepareSchema, defaults }: OutputAgent,
  call: RunCall,
): OutputSpec | null {
  if (output === undefined) return null;
  if (output.type === "text") return TEXT;
  // The agent's own schema does not count against any client.
  const rateKey = output === defaults.output ? undefined : schemaRateKey(call);
  return objectOutput(
    output.schema === undefined ? undefined : prepareSchema(output.schema, "options.output.schema", rateKey),
  );
}

/** Whose rate limit a new schema counts against; undefined for calls that the service makes itself. */
export function schemaRateKey({ user, client }: RunCall): string | undefined {
  const id = userIdOf(user);
  if (id !== null) return `user ${id}`;
  return client === undefined ? undefined : `address ${client.address}`;
}
