/** Bodies of answers: read within a bound, or left. */

import { type Duplex, pipeline, type Readable } from "node:stream";
import * as zlib from "node:zlib";

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

// Decoders of HTTP bodies.

type Decoder = () => Duplex;
/** Node 20 has none. */
const { createZstdDecompress } = zlib as { createZstdDecompress?: Decoder };

const DECODERS: ReadonlyMap<string, Decoder> = new Map<string, Decoder>([
  ["gzip", zlib.createGunzip],
  ["x-gzip", zlib.createGunzip],
  ["deflate", zlib.createInflate],
  ["br", zlib.createBrotliDecompress],
  ...(createZstdDecompress === undefined ? [] : ([["zstd", createZstdDecompress]] as const)),
]);

/** What servers say of a body that is not encoded. */
const PLAIN: ReadonlySet<string> = new Set(["", "identity", "none", "utf-8", "utf8"]);

/** @param encoding a `Content-Encoding`. Returns null for a plain body. @throws Error for an encoding that Node cannot read */
export function decoderOf(encoding: string): Duplex | null {
  const name = encoding.trim().toLowerCase();
  if (PLAIN.has(name)) return null;
  const decoder = DECODERS.get(name);
  if (decoder === undefined) throw new Error(`its content-encoding ${name.slice(0, 40)} cannot be read`);
  return decoder();
}

/** A body as it was before it was compressed. @throws Error for an encoding that Node cannot read: the body is left then */
export function decoded(body: Readable, encoding: unknown = ""): Readable {
  try {
    const decoder = decoderOf(String(encoding));
    // No error handler: the reader of the last stream gets the failures.
    return decoder === null ? body : pipeline(body, decoder, () => undefined);
  } catch (error) {
    leave(body);
    throw error;
  }
}
