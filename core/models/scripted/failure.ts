/** Failures that a script asks for, in the form in which a real provider fails. */
import { APICallError } from "@ai-sdk/provider";

/** The ways in which a model call fails, by what clients are told, and the status that a provider would have sent. */
const STATUSES: Readonly<Record<string, number>> = {
  "rate limited": 429,
  "timed out": 504,
  unavailable: 503,
  "refused the request": 400,
};

/** `error: rate limited` and so on; any other text is the upstream's own and counts as `unavailable`. */
export function scriptedFailure(error: string): Error {
  const statusCode = Object.hasOwn(STATUSES, error) ? STATUSES[error]! : 503;
  return new APICallError({ message: error, url: "scripted:", requestBodyValues: {}, statusCode });
}
