/** Options that Chat Completions and Responses share, converted to those of agents. */
import type { GenerateOptions } from "../../generated/types.ts";
import type { ProtocolBody } from "../agents/agent.ts";
import { invalid } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { isNothing } from "./tools.ts";

interface Sampling {
  readonly temperature?: number | null;
  readonly top_p?: number | null;
  readonly presence_penalty?: number | null;
  readonly frequency_penalty?: number | null;
  readonly metadata?: Record<string, string> | null;
}

/** Null counts as missing: then the agent's own option applies. The metadata becomes the context of the run. */
export function samplingOptions(body: Sampling, tokens: number | null | undefined): GenerateOptions {
  const { temperature, top_p: topP, presence_penalty: presence, frequency_penalty: frequency } = body;
  return {
    ...(!isNothing(temperature) && { temperature }),
    ...(!isNothing(topP) && { topP }),
    ...(!isNothing(presence) && { presencePenalty: presence }),
    ...(!isNothing(frequency) && { frequencyPenalty: frequency }),
    ...(!isNothing(tokens) && { maxOutputTokens: tokens }),
    ...(!isNothing(body.metadata) && { context: body.metadata }),
  };
}

/** @param field the place of the schema in the request */
export function readFormat(type: string | undefined, schema: unknown, field: string): ProtocolBody["json"] {
  if (type === undefined || type === "text") return undefined;
  if (type === "json_object") return { schema: undefined, field };
  if (!isObject(schema)) throw invalid(`${field} must be object`);
  return { schema, field };
}
