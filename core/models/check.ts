/** What can be known of a model at boot, before the first call. */
import { caught, messageOf } from "../lib/errors.ts";
import { isThenable } from "../lib/thenable.ts";

const NEEDED = "v3";

/** AI SDK errors that say in their message which key or setting is missing and how it is given. */
const MISSING: ReadonlySet<unknown> = new Set(["AI_LoadAPIKeyError", "AI_LoadSettingError"]);

export interface ModelFlaw {
  message: string;
  /** The provider as a whole is to blame, not the one model. */
  ofProvider: boolean;
}

/**
 * What is wrong with a model, or null: another version of the interface, or a key that the package looks for in the
 * environment and does not find. AI SDK models read their key when they build the headers of a call.
 */
export function modelFlaw(model: unknown): ModelFlaw | null {
  const { specificationVersion, config } = (model ?? {}) as { specificationVersion?: unknown; config?: unknown };
  if (specificationVersion !== NEEDED) {
    const message = `it speaks version ${String(specificationVersion)} of the AI SDK's model interface, and ${NEEDED} is needed: install the release of it for AI SDK 6`;
    return { message, ofProvider: true };
  }
  const headers = (config as { headers?: unknown } | undefined)?.headers;
  // An asynchronous one may fetch a token, which is not for boot to do.
  if (typeof headers !== "function" || headers.constructor.name !== "Function") return null;
  try {
    const made: unknown = headers.call(config);
    if (isThenable(made)) Promise.resolve(made).catch(() => undefined);
  } catch (thrown) {
    const error = caught(thrown);
    if (error instanceof Error && MISSING.has(error.name)) return { message: messageOf(error), ofProvider: true };
  }
  return null;
}
