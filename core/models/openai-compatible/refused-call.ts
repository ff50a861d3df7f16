/** The error of a call that the provider answered with another status than expected, or with another kind of body. */
import { APICallError } from "@ai-sdk/provider";
import { isObject } from "../../lib/is-object.ts";
import type { ResponseHeaders } from "./upstream-call.ts";

/** How much is kept of a body that is not an answer. */
export const MAX_ERROR_CHARACTERS = 64 * 1024;

interface Response {
  readonly url: string;
  readonly status: number;
  readonly headers: ResponseHeaders;
  readonly body: string;
}

/** Makes the error. It does not contain the prompt, which would get into the log. */
export function refusedCall({ url, status, headers, body }: Response): APICallError {
  const data = parse(body);
  return new APICallError({
    message:
      errorMessage(data) ?? `${withoutQuery(url)} answered ${status} and not with a completion${excerpt(data, body)}`,
    url,
    requestBodyValues: undefined,
    statusCode: status,
    responseHeaders: plainHeaders(headers),
    responseBody: body,
    data,
  });
}

/** Parses the body. Gemini sends a list that contains the error. */
function parse(body: string): unknown {
  try {
    const data: unknown = JSON.parse(body);
    return Array.isArray(data) ? data[0] : data;
  } catch {
    return undefined;
  }
}

/** The message as common servers send it: `{error: {message}}`, `{error: "..."}`, `{message}`, `{detail}`. */
function errorMessage(data: unknown): string | null {
  if (!isObject(data)) return null;
  const { error, message, detail } = data;
  const candidates = [isObject(error) ? error.message : error, message, detail, detailText(data)];
  return candidates.find((each): each is string => typeof each === "string" && each !== "") ?? null;
}

/** One field of the request that the server's validation rejects. */
interface ValidationDetail {
  readonly type: string;
  /** Keys from the root of the request. */
  readonly place: readonly string[];
  readonly message: string;
}

/** Reads FastAPI's `{detail: [{type, loc, msg}]}`, which vLLM sends, and Mistral as the `message` of the error. */
export function validationDetails(data: unknown): ValidationDetail[] {
  if (!isObject(data)) return [];
  const error = isObject(data.error) ? data.error : data;
  const { detail } = isObject(error.message) ? error.message : error;
  if (!Array.isArray(detail)) return [];
  return detail.filter(isObject).map(({ type, loc, msg }) => ({
    type: typeof type === "string" ? type : "",
    place: Array.isArray(loc) ? loc.map(String) : [],
    message: typeof msg === "string" ? msg : "",
  }));
}

const detailText = (data: unknown): string =>
  validationDetails(data)
    .map(({ place, message }) => `${place.join(".")}: ${message}`)
    .join("; ");

/** Removes the query, which may contain a key. */
const withoutQuery = (url: string): string => url.split("?", 1)[0]!;

const MAX_EXCERPT = 200;

/** The start of an HTML page or plain text. Nothing of JSON, which might be an answer and must not be logged. */
function excerpt(data: unknown, body: string): string {
  if (data !== undefined) return "";
  const [, title] = /<title>([^<]*)/i.exec(body) ?? [];
  const text = (title ?? body).replace(/\s+/g, " ").trim().slice(0, MAX_EXCERPT);
  return text === "" ? "" : `: ${text}`;
}

function plainHeaders(headers: ResponseHeaders): Record<string, string> {
  const entries = Object.entries(headers).map(([name, value]) => [name, [value ?? []].flat().join(", ")]);
  return Object.fromEntries(entries);
}
