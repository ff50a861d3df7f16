/** What the attributes of a span say that people ask for first. */

/** @import { SpanRecord } from "../../../../generated/types.ts" */

const INPUTS = ["gen_ai.input.messages", "input", "gen_ai.tool.call.arguments"];

/** What a run was given: of a list of messages what was said last. @param {Pick<SpanRecord, "attributes">} span */
export function inputOf({ attributes }) {
  const value = INPUTS.map((name) => attributes[name]).find((each) => each !== undefined && each !== null);
  if (value === undefined) return "";
  const parsed = parsedJson(value);
  const last = Array.isArray(parsed) ? parsed.at(-1) : undefined;
  const parts = last?.parts;
  if (Array.isArray(parts))
    return parts.map((part) => (typeof part?.content === "string" ? part.content : "")).join(" ");
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** As people named what worked, else the span. @param {Pick<SpanRecord, "attributes" | "name">} span */
export const nameOf = ({ attributes, name }) => String(attributes["entity.name"] ?? name);

/** @param {Pick<SpanRecord, "attributes">} span */
export function tokensOf({ attributes }) {
  const read = Number(attributes["gen_ai.usage.input_tokens"] ?? Number.NaN);
  const written = Number(attributes["gen_ai.usage.output_tokens"] ?? Number.NaN);
  return Number.isNaN(read) || Number.isNaN(written) ? null : { read, written, total: read + written };
}

/**
 * The value of a text that is a JSON object or list; undefined for any other value.
 *
 * @param {unknown} value
 */
export function parsedJson(value) {
  if (typeof value !== "string" || !/^\s*[[{]/.test(value))
    return typeof value === "object" && value !== null ? value : undefined;
  try {
    return JSON.parse(value);
  } catch {
    // A text that was cut, or that only begins like JSON.
    return undefined;
  }
}
