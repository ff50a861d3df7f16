/** Decodes bodies that a provider has compressed without being asked to. */
import { pipeline, Readable, Transform } from "node:stream";
import type { ReadableStream as NodeStream } from "node:stream/web";
import { decoderOf } from "../../outbound/decompress.ts";
import { AnswerTooLarge, MAX_ANSWER_BYTES } from "../../plugin/model-errors.ts";

/** Returns the response itself when its body is plain. */
export function decodeBody(response: Response): Response {
  const encoding = response.headers.get("content-encoding");
  if (encoding === null || response.body === null) return response;
  const decoder = decoderOf(encoding);
  if (decoder === null) return response;
  const encoded = Readable.fromWeb(response.body as NodeStream);
  // No error handler: the reader of the last stream gets the failures.
  const decoded = pipeline(encoded, decoder, bounded(), () => undefined);
  const body = Readable.toWeb(decoded) as ReadableStream<Uint8Array>;
  const headers = new Headers(response.headers);
  headers.delete("content-encoding");
  headers.delete("content-length");
  return new Response(body, { status: response.status, statusText: response.statusText, headers });
}

/** Limits the decoded size: a few bytes may expand to very many. */
function bounded(): Transform {
  let bytes = 0;
  return new Transform({
    transform(chunk: Buffer, _, done) {
      bytes += chunk.length;
      if (bytes <= MAX_ANSWER_BYTES) done(null, chunk);
      else done(new AnswerTooLarge());
    },
  });
}
