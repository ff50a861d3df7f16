/** Finds problems of a model at boot, before its first call. */
import { caught, messageOf } from "../lib/errors.ts";
import { isThenable } from "../lib/thenable.ts";
import { VERSIONS } from "./versions/versions.ts";

/** AI SDK errors whose message names the missing key or setting and how to set it. */
const MISSING_SETTING_ERRORS: ReadonlySet<unknown> = new Set(["AI_LoadAPIKeyError", "AI_LoadSettingError"]);

export interface ModelFlaw {
  message: string;
  /** Whether the whole provider is at fault, not only this model. */
  ofProvider: boolean;
}

/**
 * The problem of a model, or null: a version of the model interface that is not supported, or a key that is missing in the
 * environment. AI SDK models read their key when they build the headers of a call, so building the headers finds a missing key.
 *
 * @param use the package or plugin that it comes from
 */
export function findModelFlaw(model: unknown, use: string): ModelFlaw | null {
  const { specificationVersion, config } = (model ?? {}) as { specificationVersion?: unknown; config?: unknown };
  if (!VERSIONS.includes(specificationVersion)) {
    const message = `the models of "${use}" speak version ${String(specificationVersion)} of the AI SDK's model interface, and ${VERSIONS.join(", ")} are understood: install the release of it for AI SDK 7`;
    return { message, ofProvider: true };
  }
  const headers = (config as { headers?: unknown } | undefined)?.headers;
  // An asynchronous function may fetch a token over the network, which must not happen at boot.
  if (typeof headers !== "function" || headers.constructor.name !== "Function") return null;
  try {
    const result: unknown = headers.call(config);
    if (isThenable(result)) Promise.resolve(result).catch(() => undefined);
  } catch (thrown) {
    const error = caught(thrown);
    if (error instanceof Error && MISSING_SETTING_ERRORS.has(error.name))
      return { message: messageOf(error), ofProvider: true };
  }
  return null;
}
