/** The error of a call that the provider has not answered as it should: with another status, or with another kind of body. */
import { APICallError } from "@ai-sdk/provider";
import { isObject } from "../../lib/is-object.ts";
import type { ResponseHeaders } from "./upstream-call.ts";

/** Of a body that is not an answer. */
export const MAX_ERROR_CHARACTERS = 64 * 1024;

interface Response {
  readonly url: string;
  readonly status: number;
  readonly headers: ResponseHeaders;
  readonly body: string;
}

/** The prompt is not in the error: it would come into the log with it. */
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

/** Gemini sends a list with the error in it. */
function parse(body: string): unknown {
  try {
    const data: unknown = JSON.parse(body);
    return Array.isArray(data) ? data[0] : data;
  } catch {
    return undefined;
  }
}

/** What the usual servers call it: `{error: {message}}`, `{error: "..."}`, `{message}`, `{detail}`. */
function errorMessage(data: unknown): string | null {
  if (!isObject(data)) return null;
  const { error, message, detail } = data;
  const candidates = [isObject(error) ? error.message : error, message, detail, detailText(data)];
  return candidates.find((each): each is string => typeof each === "string" && each !== "") ?? null;
}

/** One field of the request that the server's validation minds. */
interface ValidationDetail {
  readonly type: string;
  /** Keys from the root of the request. */
  readonly place: readonly string[];
  readonly message: string;
}

/** FastAPI's `{detail: [{type, loc, msg}]}`: vLLM, and as `message` of the error Mistral. */
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

/** It may hold a key. */
const withoutQuery = (url: string): string => url.split("?", 1)[0]!;

const MAX_EXCERPT = 200;

/** What a page or a plain text says; JSON might be an answer, which is not for the log. */
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
