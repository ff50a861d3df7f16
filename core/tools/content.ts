/** Pictures and files in the result of a tool, beside texts. In all other results they would be a long text for the model. */
import type { ContentResult } from "../../generated/types.ts";
import { validators } from "../../generated/validators.js";
import { quoted, ServiceError } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";

export const isContent = (value: unknown): value is ContentResult =>
  isObject(value) && value.type === "content" && validators.ContentResult(value);

/** The result of a tool; null for undefined. @throws ServiceError `tool_failed` for more content than a result may have */
export function boundedResult(name: string, result: unknown): unknown {
  // Of base64 that many characters are 5 MiB.
  if (isContent(result) && JSON.stringify(result).length > 6_990_508)
    throw new ServiceError("tool_failed", `tool ${quoted(name)} returned more than 5 MiB of content`);
  return result === undefined ? null : result;
}
