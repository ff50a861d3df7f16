/** Decodes bodies that a provider has compressed without being asked to. */
import { Readable } from "node:stream";
import type { ReadableStream as NodeStream } from "node:stream/web";
import { decoded } from "../../outbound/decompress.ts";
import { AnswerTooLarge, MAX_ANSWER_BYTES } from "../../plugin/model-errors.ts";

/** Returns the response itself when its body is plain. */
export function decodeBody(response: Response): Response {
  const encoding = response.headers.get("content-encoding");
  if (encoding === null || response.body === null) return response;
  const body = decoded(Readable.fromWeb(response.body as NodeStream), encoding);
  const plain = new Response(ReadableStream.from(bounded(body)), response);
  for (const name of ["content-encoding", "content-length"]) plain.headers.delete(name);
  return plain;
}

/** Limits the decoded size: a few bytes may expand to very many. */
async function* bounded(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > MAX_ANSWER_BYTES) throw new AnswerTooLarge();
    yield chunk;
  }
}
