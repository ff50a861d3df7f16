/** Bodies of answers: read within a bound, or left. */
import type { Readable } from "node:stream";

/**
 * @param chunks read to the end, or closed
 * @param left bytes that may be read; reduced by those that were
 * @param tooLarge the error for more
 */
export async function readBytes(
  chunks: AsyncIterable<Uint8Array> | null,
  left: { bytes: number },
  tooLarge: () => Error,
): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  // Leaving the loop closes the connection: the rest is not read.
  for await (const chunk of chunks ?? []) {
    left.bytes -= chunk.length;
    if (left.bytes < 0) throw tooLarge();
    parts.push(chunk);
  }
  return Buffer.concat(parts);
}

/** Closes the connection. The abandoned body emits an error event, which would end the process without a listener. */
export function leave(body: Readable): void {
  body.on("error", () => undefined).destroy();
}
