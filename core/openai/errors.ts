/** Failures as OpenAI writes them: `{error: {message, type, param, code}}`. Clients branch on the status and on `code`. */
import { type ErrorForm, JSON_TYPE } from "../http/encode.ts";
import { type ErrorKind, invalid, messageOf, ServiceError, STATUS } from "../lib/errors.ts";
import type { InputMessage } from "./content.ts";
import { inPlaces } from "./places.ts";

/** A failure with a code of its own. */
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

/** @param kind as it is on record: an `ErrorKind`, or nothing */
export const codeOfKind = (kind: string | null | undefined): string => CODES[kind as ErrorKind] ?? "server_error";

const TYPES: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  429: "rate_limit_error",
  500: "server_error",
  503: "server_error",
};

/** OpenAI's clients repeat these by themselves, and a run may have had effects by then: they are told not to. */
const REPEATED_BY_CLIENTS = new Set([409, 500]);

interface ErrorFields {
  readonly message: string;
  readonly type: string;
  /** Texts, empty where there is none: some clients lose the message of an error with a null in it. */
  readonly param: string;
  readonly code: string;
}

/** @param message in place of the error's own */
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

/** What does not fit into the model's context is the request's fault here. */
export const statusOf = ({ kind }: ServiceError): number => (kind === "context_length" ? 400 : STATUS[kind]);

/** Messages about a request begin with the field that they are about. */
const FIELD = /^([a-z_]+(?:\[\d+\]|\.[\w$-]+)*)(?= must | is |:)/;
const paramOf = (message: string): string => FIELD.exec(message)?.[1]?.replace(/^body$/, "") ?? "";

/** The route's failures, and those of unknown paths beside it. */
export const openaiErrors: ErrorForm = (error) => {
  const status = statusOf(error);
  // Said twice it would read "false, false", which no client knows.
  const isSaid = error.headers?.["x-should-retry"] !== undefined;
  const headers = REPEATED_BY_CLIENTS.has(status) && !isSaid ? ["x-should-retry", "false"] : [];
  return { status, headers, body: JSON.stringify({ error: errorFields(error) }) };
};

/** The failure of a run that may have had effects: OpenAI's clients do not repeat its request by themselves. */
export const notAgain = (error: unknown): unknown =>
  error instanceof ServiceError
    ? new ServiceError(error.kind, error.message, {
        source: error.source,
        cause: error.cause,
        ...(error.logged !== undefined && { logged: error.logged }),
        headers: { ...error.headers, "x-should-retry": "false" },
      })
    : error;

/** What the agent calls its options, in the words of the request. */
export type FieldNames = Readonly<Record<string, string>>;

/** Runs `prepare`, and says what is wrong with an option, a message or a part in the words of the request. */
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

export const jsonReply = (value: unknown) => ({
  status: 200,
  headers: ["content-type", JSON_TYPE],
  body: JSON.stringify(value),
});
