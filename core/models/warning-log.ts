/** Logs the warnings of providers, each once for each model: a provider repeats them with every call. */
import type { SharedV3Warning } from "@ai-sdk/provider";
import type { Logger } from "pino";

/** Bound of the warnings that are remembered; then nothing new is logged. Providers may include values that change with each request. */
const MAX_WARNINGS = 1000;
const MAX_LENGTH = 1000;

export class WarningLog {
  readonly #seen = new Set<string>();
  readonly #logger: Pick<Logger, "warn">;

  constructor(logger: Pick<Logger, "warn">) {
    this.#logger = logger;
  }

  readonly add = (model: string, text: string): void => {
    const warning = text.slice(0, MAX_LENGTH);
    const key = `${model} ${warning}`;
    if (this.#seen.has(key) || this.#seen.size >= MAX_WARNINGS) return;
    this.#seen.add(key);
    this.#logger.warn({ model, warning }, "model provider warns");
  };
}

export const warningText = (warning: SharedV3Warning): string =>
  warning.type === "other"
    ? warning.message
    : `${warning.type}: ${warning.feature}${warning.details === undefined ? "" : ` (${warning.details})`}`;
