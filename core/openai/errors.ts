/** Failures in OpenAI's format: `{error: {message, type, param, code}}`. Clients branch on the status and on `code`. */

import { type ErrorForm, JSON_TYPE } from "../http/encode.ts";
import { type ErrorKind, invalid, messageOf, ServiceError, STATUS } from "../lib/errors.ts";
import type { Fields } from "../lib/is-object.ts";

/*
 * Maps parts of the agent's input to their places in the request. The lists differ: in the agent's input instructions come first, items
 * become parts of one message, and empty answers are left out.
 */

/** A part of a message, for the input of an agent. */
export type InputPart = Fields & { readonly type: string };

/** A message in the form that agents read. */
export interface InputMessage {
  readonly role: "system" | "user" | "assistant" | "tool";
  readonly content: string | readonly InputPart[];
}

const PLACES = new WeakMap<object, string>();

/** Records the place of a message, or of the field from which a part was made. */
export function placed<T extends object>(value: T, path: string): T {
  PLACES.set(value, path);
  return value;
}

/** A place in the agent's input, such as `messages[2].content[1].image`. */
const PLACE = /^(?:messages|input)\[(\d+)\](?:\.content\[(\d+)\](?:\.\w+)?)?/;

/** Replaces the place in a message about a problem with that of the request. */
function inPlaces(problem: string, messages: readonly InputMessage[]): string {
  const found = PLACE.exec(problem);
  const message = found === null ? undefined : messages[Number(found[1])];
  if (found === null || message === undefined) return problem;
  const whole = found[2] === undefined ? message : message.content[Number(found[2])];
  const place = typeof whole === "object" ? PLACES.get(whole) : undefined;
  return place === undefined ? problem : place + problem.slice(found[0].length);
}

/** A failure with a specific code. */
export class OpenaiError extends ServiceError {
  readonly code: string;
  readonly param: string;

  constructor(kind: ErrorKind, message: string, code: string, param: string) {
    super(kind, message);
    this.code = code;
    this.param = param;
  }
}

export const unsupported = (param: string, message: string): OpenaiError =>
  new OpenaiError("invalid_input", `${param} ${message}`, "unsupported_parameter", param);

const CODES: Partial<Record<ErrorKind, string>> = {
  invalid_input: "invalid_value",
  unauthorized: "invalid_api_key",
  forbidden: "forbidden",
  not_found: "not_found",
  method_not_allowed: "method_not_allowed",
  conflict: "conflict",
  too_large: "request_too_large",
  unsupported_media_type: "unsupported_media_type",
  rate_limited: "rate_limit_exceeded",
  provider_failed: "model_error",
  key_reused: "key_reused",
  context_length: "context_length_exceeded",
};

/** @param kind from the store: an `ErrorKind`, or nothing */
export const codeOfKind = (kind: string | null | undefined): string => CODES[kind as ErrorKind] ?? "server_error";

const TYPES: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  429: "rate_limit_error",
  500: "server_error",
  503: "server_error",
};

/** Statuses after which OpenAI's clients repeat a request by themselves; a header tells them not to, as a run may have had effects. */
const REPEATED_BY_CLIENTS = new Set([409, 500]);

interface ErrorFields {
  readonly message: string;
  readonly type: string;
  /** Like `code`, an empty string for no value: some clients lose the message of an error that contains null. */
  readonly param: string;
  readonly code: string;
}

/** @param message replaces the error's own */
export function errorFields(error: unknown, message = messageOf(error)): ErrorFields {
  const known = error instanceof ServiceError ? error : new ServiceError("internal", message);
  const own = known instanceof OpenaiError ? known : undefined;
  return {
    message,
    type: TYPES[statusOf(known)] ?? "invalid_request_error",
    param: own?.param ?? (known.kind === "invalid_input" ? paramOf(message) : ""),
    code: own?.code ?? CODES[known.kind] ?? "server_error",
  };
}

/** Here a prompt that exceeds the model's context is the request's fault. */
export const statusOf = ({ kind }: ServiceError): number => (kind === "context_length" ? 400 : STATUS[kind]);

/** Messages about a request begin with the name of the field. */
const FIELD = /^([a-z_]+(?:\[\d+\]|\.[\w$-]+)*)(?= (?:must|is|does|has) |:)/;
const paramOf = (message: string): string => FIELD.exec(message)?.[1]?.replace(/^body$/, "") ?? "";

/** The failures of the routes, and of unknown paths beside them. */
export const openaiErrors: ErrorForm = (error) => {
  const status = statusOf(error);
  // A second header would make it "false, false", which no client understands.
  const isSaid = error.headers?.["x-should-retry"] !== undefined;
  const headers = REPEATED_BY_CLIENTS.has(status) && !isSaid ? ["x-should-retry", "false"] : [];
  return { status, headers, body: JSON.stringify({ error: errorFields(error) }) };
};
openaiErrors.schemaOf = () => "OpenaiFailure";

/** The failure of a run that may have had side effects: tells OpenAI's clients not to repeat its request by themselves. */
export const notAgain = (error: unknown): unknown =>
  error instanceof ServiceError
    ? new ServiceError(error.kind, error.message, {
        ...error,
        cause: error.cause,
        headers: { ...error.headers, "x-should-retry": "false" },
      })
    : error;

/** The agent's names of options, mapped to those of the request. */
export type FieldNames = Readonly<Record<string, string>>;

/** Runs `prepare`; errors about an option, a message or a part use the names of the request. */
export function inOwnWords<T>(names: FieldNames, messages: readonly InputMessage[], prepare: () => T): T {
  try {
    return prepare();
  } catch (error) {
    if (!(error instanceof ServiceError) || error.kind !== "invalid_input") throw error;
    const option = /^options\.(\w+)/.exec(error.message);
    const name = option === null ? undefined : names[option[1]!];
    if (name !== undefined) throw invalid(name + error.message.slice(option![0].length));
    const message = inPlaces(error.message, messages);
    throw message === error.message ? error : invalid(message);
  }
}

/** @param value text is JSON already */
export const jsonReply = (value: unknown) => ({
  status: 200,
  headers: ["content-type", JSON_TYPE],
  body: typeof value === "string" ? value : JSON.stringify(value),
});
