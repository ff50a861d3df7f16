/** Turns a value or an error into the body and headers of a reply: the JSON envelope. */
import { type ErrorKind, type Facts, ServiceError, STATUS } from "../lib/errors.ts";
import { between, Serialized, type SerializedStream, type Text } from "../lib/serialized.ts";
import type { HeaderList } from "./exchange.ts";

export const JSON_TYPE = "application/json; charset=utf-8";

/** `{"success":true,"data":...}`; undefined becomes null. */
export function envelope(value: unknown): Text {
  if (!(value instanceof Serialized)) return `${ENVELOPE_START}${JSON.stringify(value) ?? "null"}}`;
  const { pieces } = value;
  const [first] = pieces;
  if (pieces.length === 1 && typeof first === "string") return `${ENVELOPE_START}${first}}`;
  if (pieces.every((piece) => typeof piece === "string")) return `${ENVELOPE_START}${pieces.join("")}}`;
  return Buffer.concat(
    [ENVELOPE_START, ...pieces, "}"].map((piece) => (typeof piece === "string" ? Buffer.from(piece) : piece)),
  );
}

export const envelopePieces = ({ stream }: SerializedStream): AsyncIterable<string> =>
  between(ENVELOPE_START, stream, "}");

const ENVELOPE_START = '{"success":true,"data":';

const FACT_HEADERS: Readonly<Record<keyof Facts, string>> = {
  retryAfter: "retry-after",
  runId: "x-run-id",
  executionId: "x-execution-id",
  approvalId: "x-approval-id",
  location: "location",
  isReplayed: "idempotency-replayed",
};

export const factHeaders = (facts: Facts | undefined): HeaderList =>
  facts === undefined
    ? []
    : Object.entries(facts).flatMap(([fact, value]) => [FACT_HEADERS[fact as keyof Facts], String(value)]);

interface ErrorReply {
  status: number;
  headers: HeaderList;
  body: string;
}

const DEFAULT_HEADERS: Partial<Record<ErrorKind, HeaderList>> = {
  unauthorized: ["www-authenticate", 'Bearer realm="penstock"'],
  rate_limited: ["retry-after", "1"],
  unavailable: ["retry-after", "1"],
};

/** Writes failures in a protocol's own format: the status, the body, and headers beside those that every failure has. */
export interface ErrorForm {
  (error: ServiceError): ErrorReply;
  /** What the body of a failure is, for `/doc`; default: the envelope. */
  schemaOf?: (kind: ErrorKind) => string;
}

export const enveloped: ErrorForm = ({ kind, message }) => ({
  status: STATUS[kind],
  headers: [],
  body: JSON.stringify({ success: false, error: message }),
});

/** The reply to a failure. For an internal error it only names the request id, by which the log line can be found. */
export function errorReply(error: unknown, requestId: string, form = enveloped): ErrorReply {
  // A plugin may throw a `ServiceError` of a kind that does not exist.
  const known =
    error instanceof ServiceError && Object.hasOwn(STATUS, error.kind)
      ? error
      : new ServiceError("internal", `internal error (request id ${requestId})`);
  const said = [...factHeaders(known.facts), ...Object.entries(known.headers ?? {}).flat()];
  const defaults = DEFAULT_HEADERS[known.kind] ?? [];
  const headers = ["content-type", JSON_TYPE, "x-error-code", known.kind, "x-error-source", known.source, ...said];
  if (!said.includes(defaults[0] ?? "")) headers.push(...defaults);
  const { status, headers: own, body } = form(known);
  return { status, headers: [...headers, ...own], body };
}

/** The message of an error event within a stream. */
export function failureText(error: unknown, requestId: string): string {
  return error instanceof ServiceError ? error.message : `internal error (request id ${requestId})`;
}
