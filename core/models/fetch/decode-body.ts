/** Bodies that a provider has compressed although nobody asked for it. */
import { type Duplex, Readable } from "node:stream";
import type { ReadableStream as NodeStream } from "node:stream/web";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";

const DECODERS: Record<string, () => Duplex> = {
  gzip: createGunzip,
  "x-gzip": createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
};

/** The response itself when its body is plain. */
export function decodeBody(response: Response): Response {
  const encoding = response.headers.get("content-encoding");
  if (encoding === null || response.body === null) return response;
  const decoder = DECODERS[encoding.trim().toLowerCase()]?.();
  if (decoder === undefined) return response;
  const encoded = Readable.fromWeb(response.body as NodeStream);
  encoded.on("error", (error) => decoder.destroy(error));
  const body = Readable.toWeb(encoded.pipe(decoder)) as ReadableStream<Uint8Array>;
  const headers = new Headers(response.headers);
  headers.delete("content-encoding");
  headers.delete("content-length");
  return new Response(body, { status: response.status, statusText: response.statusText, headers });
}
