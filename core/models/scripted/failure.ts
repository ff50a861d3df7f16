/** The failures of scripted models, in the form of a real provider's failures. */
import { APICallError } from "@ai-sdk/provider";

/** The HTTP status that a real provider sends for each reason in error messages. */
const STATUSES: Readonly<Record<string, number>> = {
  "rate limited": 429,
  "timed out": 504,
  overloaded: 503,
  unavailable: 500,
  "refused the request": 400,
};

/** @param error one of the reasons above; any other text is the message of an `unavailable` */
export function scriptedFailure(error: string): Error {
  const statusCode = Object.hasOwn(STATUSES, error) ? STATUSES[error]! : 500;
  return new APICallError({ message: error, url: "scripted:", requestBodyValues: {}, statusCode });
}
