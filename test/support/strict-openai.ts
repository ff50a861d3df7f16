/** The rules that OpenAI's two protocols share: parameters of reasoning models, names of tools, strict schemas. */
import { type Json, Refusal } from "./strict-upstream.ts";

export function refuse(message: string, param: string | null, code: string | null = null, status = 400): never {
  throw new Refusal(status, message, { error: { message, type: "invalid_request_error", param, code } });
}

const reasons = (model: string) => /^(gpt-5|o\d)/.test(model) && !model.includes("chat");

/** Reasoning models take no sampling parameters. `other` are the names that only one of the protocols has. */
export function checkParameters(body: Json, other: readonly string[]): void {
  const { model } = body;
  if (typeof model !== "string") refuse("you must provide a model parameter", null);
  if (!reasons(model)) return;
  for (const name of ["top_p", ...other]) {
    if (body[name] === undefined) continue;
    refuse(
      `Unsupported parameter: '${name}' is not supported with this model.${name === "max_tokens" ? " Use 'max_completion_tokens' instead." : ""}`,
      name,
      "unsupported_parameter",
    );
  }
  if (body.temperature !== undefined && body.temperature !== 1)
    refuse(
      `Unsupported value: 'temperature' does not support ${body.temperature} with this model. Only the default (1) value is supported.`,
      "temperature",
      "unsupported_value",
    );
}

const NAME = "^[a-zA-Z0-9_-]+$";

export function checkName(name: string, param: string): void {
  if (name.length > 64)
    refuse(
      `Invalid '${param}': string too long. Expected a string with maximum length 64, but got a string with length ${name.length} instead.`,
      param,
      "string_above_max_length",
    );
  if (!new RegExp(NAME).test(name))
    refuse(
      `Invalid '${param}': string does not match pattern. Expected a string that matches the pattern '${NAME}'.`,
      param,
      "invalid_value",
    );
}

/** Strict mode: every object is closed and requires all of its properties. */
export function checkStrictSchema(schema: Json, what: string, param: string, context: readonly string[] = []): void {
  if (schema === null || typeof schema !== "object") return;
  const here = `(${context.map((key) => `'${key}'`).join(", ")})`;
  const wrong = (problem: string) => refuse(`Invalid schema for ${what}: In context=${here}, ${problem}`, param);
  if (schema.type === "object") {
    if (schema.additionalProperties !== false)
      wrong("'additionalProperties' is required to be supplied and to be false.");
    const missing = Object.keys(schema.properties ?? {}).find((key) => !schema.required?.includes(key));
    if (missing !== undefined)
      wrong(
        `'required' is required to be supplied and to be an array including every key in properties. Missing '${missing}'.`,
      );
  }
  for (const [key, value] of Object.entries(schema.properties ?? {}))
    checkStrictSchema(value, what, param, [...context, "properties", key]);
  if (schema.items !== undefined) checkStrictSchema(schema.items, what, param, [...context, "items"]);
}

const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,(?:iVBORw0KGgo|\/9j\/|R0lGOD|UklGR)/;
const PDF = /^data:application\/pdf;base64,JVBERi0/;

export function checkPdf({ filename, file_data: data }: Json, param: string): void {
  if (typeof data !== "string") return;
  if (!PDF.test(data))
    refuse(
      `Invalid file data: '${param}'. Expected a base64-encoded data URL with an application/pdf MIME type.`,
      param,
      "invalid_value",
    );
  if (typeof filename !== "string") refuse(`Missing required parameter: '${param}.filename'.`, param);
}

export function checkImage(url: unknown, param: string): void {
  if (typeof url !== "string" || (url.startsWith("data:") && !IMAGE.test(url)))
    refuse(
      "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp'].",
      param,
      "invalid_image_format",
    );
}
