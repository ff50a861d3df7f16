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
    message: errorMessage(data) ?? `the provider answered ${status} and not with a completion`,
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
  const candidates = [isObject(error) ? error.message : error, message, detail];
  return candidates.find((each): each is string => typeof each === "string" && each !== "") ?? null;
}

function plainHeaders(headers: ResponseHeaders): Record<string, string> {
  const entries = Object.entries(headers).map(([name, value]) => [name, [value ?? []].flat().join(", ")]);
  return Object.fromEntries(entries);
}
