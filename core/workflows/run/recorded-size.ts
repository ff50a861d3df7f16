/** How many bytes of JSON an execution has recorded, and how many it may record. */
import { formatSize } from "../../lib/size.ts";
import type { Stop } from "./lifetime.ts";

/** What takes a few milliseconds to write. */
const LARGE_BYTES = 512 * 1024;

export class RecordedSize {
  readonly #max: number;
  #bytes = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** The reason to stop an execution that would record more. */
  get tooLarge(): Stop {
    const reason = `the execution has recorded more than server.limits.execution allows: ${formatSize(this.#max)}`;
    return { kind: "size", reason, gracePeriod: 0 };
  }

  /** Whether writing all of it at once would keep others waiting. */
  get isLarge(): boolean {
    return this.#bytes > LARGE_BYTES;
  }

  /** Whether all of them can be added. */
  fits(texts: readonly string[]): boolean {
    return texts.reduce((bytes, text) => bytes + Buffer.byteLength(text), this.#bytes) <= this.#max;
  }

  /** @param recorded JSON text, or a number of bytes. @returns whether the total is within the limit */
  add(recorded: string | number): boolean {
    this.#bytes += typeof recorded === "number" ? recorded : Buffer.byteLength(recorded);
    return this.#bytes <= this.#max;
  }
}
