/** Options that Chat Completions and Responses share, converted to those of agents. */
import type { GenerateOptions } from "../../generated/types.ts";
import type { ProtocolBody } from "../agents/run-requests.ts";
import { invalid } from "../lib/errors.ts";
import { type Fields, isObject } from "../lib/is-object.ts";
import type { FieldNames } from "./errors.ts";
import { isNothing } from "./tools.ts";

/** Their names in requests, by those of agents. */
export const SAMPLING: FieldNames = {
  temperature: "temperature",
  topP: "top_p",
  frequencyPenalty: "frequency_penalty",
  presencePenalty: "presence_penalty",
};

/** Null counts as missing: then the agent's own option applies. The metadata becomes the context of the run. */
export function optionsOf(body: object, names: FieldNames): GenerateOptions {
  const given = Object.entries({ ...names, context: "metadata" }).map(([option, name]) => [
    option,
    (body as Fields)[name],
  ]);
  return Object.fromEntries(given.filter(([, value]) => !isNothing(value)));
}

/** @param field the place of the schema in the request */
export function readFormat(type: string | undefined, schema: unknown, field: string): ProtocolBody["json"] {
  if (type === undefined || type === "text") return undefined;
  if (type === "json_object") return { schema: undefined, field };
  if (!isObject(schema)) throw invalid(`${field} must be object`);
  return { schema, field };
}
