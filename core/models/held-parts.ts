/** Holds back the parts of an answer that no client is shown, until the first one that is: after another try they would come twice. */
import type { LanguageModelV3StreamPart, SharedV3Warning } from "@ai-sdk/provider";
import type { PartBatch } from "./part-source.ts";

/** Parts that are not sent to clients: after them another try is still possible. */
const INVISIBLE_PARTS: ReadonlySet<string> = new Set<LanguageModelV3StreamPart["type"]>([
  "stream-start",
  "response-metadata",
  "raw",
]);

/** How many of them are held back. After more, a failure is final. */
const MAX_INVISIBLE_PARTS = 1024;

/** Whether a batch has a part that clients are shown, and nothing that the log is told. */
export function isShownAtOnce(batch: PartBatch): boolean {
  for (const part of batch) {
    if (part.type === "stream-start" && part.warnings.length > 0) return false;
    if (!INVISIBLE_PARTS.has(part.type)) return true;
  }
  return false;
}

export class HeldParts {
  #parts: LanguageModelV3StreamPart[] | null = null;
  readonly #warned: (warnings: readonly SharedV3Warning[]) => void;

  constructor(warned: (warnings: readonly SharedV3Warning[]) => void) {
    this.#warned = warned;
  }

  /** The batch with all that was held back, if it has a visible part. Else null, and it is held back as well. */
  release(batch: PartBatch): PartBatch | null {
    const held = this.#parts;
    const long = held !== null && held.length > MAX_INVISIBLE_PARTS;
    for (const part of batch) {
      if (part.type === "stream-start" && part.warnings.length > 0) this.#warned(part.warnings);
      if (INVISIBLE_PARTS.has(part.type) && !long) continue;
      this.#parts = null;
      return held === null ? batch : [...held, ...batch];
    }
    if (held === null) this.#parts = [...batch];
    else held.push(...batch);
    return null;
  }

  /** What is held back still, for the last time. */
  take(): PartBatch | null {
    const held = this.#parts;
    this.#parts = null;
    return held;
  }
}
