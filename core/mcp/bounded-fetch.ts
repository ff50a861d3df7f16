/** Limits the size of replies from foreign MCP servers: of each reply, and of each event of a stream. */

import { outboundFetch } from "../lib/outbound.ts";

export const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

/**
 * `fetch` that ends a body with an error once it is too large.
 *
 * @param broken called when a body ends early, for that reason or another: the SDK would wait for the rest of a stream. `ofCall`
 * says whether the request called a tool, or read a text.
 */
export const boundedFetch =
  (broken: (error: unknown, ofCall: boolean) => void) =>
  async (url: string | URL, init?: RequestInit): Promise<Response> => {
    const response = await outboundFetch(url, init);
    const { body, headers, status, statusText } = response;
    if (body === null) return response;
    const isStream = headers.get("content-type")?.startsWith("text/event-stream") ?? false;
    const tell = (error: unknown) => {
      // The status of any other reply says enough.
      if (status === 200 && init?.signal?.aborted !== true) broken(error, isCall(init?.body));
    };
    return new Response(ReadableStream.from(limited(body, isStream, tell)), { headers, status, statusText });
  };

const isCall = (body: unknown): boolean =>
  typeof body === "string" && /"(?:tools\/call|resources\/read|prompts\/get)"/.test(body);

/** @param isStream the limit is for each event, because a stream may last for days */
async function* limited(
  body: ReadableStream<Uint8Array>,
  isStream: boolean,
  broken: (error: unknown) => void,
): AsyncGenerator<Uint8Array> {
  let size = 0;
  try {
    for await (const chunk of body) {
      size += chunk.length;
      if (size > MAX_MESSAGE_BYTES) throw new Error(`it sent more than ${MAX_MESSAGE_BYTES / 1024 / 1024} MiB`);
      if (isStream && endsEvent(chunk)) size = 0;
      yield chunk;
    }
  } catch (error) {
    broken(error);
    throw error;
  }
}

/** Whether an empty line is in the chunk, which ends an event. */
function endsEvent(chunk: Uint8Array): boolean {
  const text = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  return text.includes("\n\n") || text.includes("\r\n\r\n") || text.includes("\r\r");
}
