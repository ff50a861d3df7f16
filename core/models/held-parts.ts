/** Holds back the parts of an answer that clients do not see, until the first visible one: a retry would send them twice. */
import type { LanguageModelV3StreamPart, SharedV3Warning } from "@ai-sdk/provider";
import type { PartBatch } from "./part-source.ts";

/** Parts that are not sent to clients: after them a retry is still possible. */
const INVISIBLE_PARTS: ReadonlySet<string> = new Set<LanguageModelV3StreamPart["type"]>([
  "stream-start",
  "response-metadata",
  "raw",
]);

/** Most parts that are held back. After more, a failure is final. */
const MAX_INVISIBLE_PARTS = 1024;

/** Whether a batch contains a part that clients see, and none for the log. */
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

  /** The batch with all that was held back, if it contains a visible part. Else null, and the batch is held back as well. */
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

  /** The parts that are still held back, at the end of the answer. */
  take(): PartBatch | null {
    const held = this.#parts;
    this.#parts = null;
    return held;
  }
}
