/** Limits the size of messages from foreign MCP servers, and keeps their integers. */
import { ReadBuffer } from "@modelcontextprotocol/client";
import { withTexts } from "../lib/large-integers.ts";

import { outboundFetch } from "../outbound/proxy.ts";

export const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

/**
 * `fetch` that ends a body with an error once it is too large, and whose bodies have no integers that would be rounded.
 *
 * @param broken called when a body ends early, for that reason or another: the SDK would wait for the rest of a stream. `ofCall`
 * says whether the request called a tool, or read a text.
 */
export const boundedFetch =
  (broken: (error: unknown, ofCall: boolean) => void) =>
  async (url: string | URL, init?: RequestInit): Promise<Response> => {
    const response = await outboundFetch(url, init);
    const { body, headers, status } = response;
    if (body === null) return response;
    const isStream = headers.get("content-type")?.startsWith("text/event-stream") ?? false;
    const tell = (error: unknown) => {
      // The status of any other reply says enough.
      if (status === 200 && init?.signal?.aborted !== true) broken(error, isCall(init?.body));
    };
    const chunks = limited(body, isStream, tell);
    return new Response(ReadableStream.from(exact(chunks, isStream)), response);
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

/** The same messages with large integers in results of tools as strings: whole lines of a stream, or all of a body. */
async function* exact(chunks: AsyncIterable<Uint8Array>, isStream: boolean): AsyncGenerator<Uint8Array> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of chunks) {
    rest += decoder.decode(chunk, { stream: true });
    const end = isStream ? Math.max(rest.lastIndexOf("\n"), rest.lastIndexOf("\r")) + 1 : 0;
    if (end === 0) continue;
    yield Buffer.from(rest.slice(0, end).replace(/^data:.*/gm, (line) => `data:${exactMessage(line.slice(5))}`));
    rest = rest.slice(end);
  }
  yield Buffer.from(isStream ? rest : exactMessage(rest));
}

/** A message of a server; in the result of a tool, integers that a number cannot hold become strings. */
function exactMessage(text: string): string {
  const exactText = withTexts(text);
  if (exactText === text) return text;
  try {
    const { result } = JSON.parse(text) as { result?: { content?: unknown } };
    return result?.content === undefined ? text : exactText;
  } catch {
    return text;
  }
}

/** The buffer of the SDK for a child process, which is handed whole lines. */
export class ExactReadBuffer extends ReadBuffer {
  #rest: Buffer[] = [];
  #size = 0;

  override append(chunk: Buffer): void {
    const end = chunk.lastIndexOf(0x0a) + 1;
    this.#rest.push(end === 0 ? chunk : chunk.subarray(0, end));
    this.#size += chunk.length;
    // A line that is too large is left to the check of the SDK.
    if (end === 0 && this.#size <= MAX_MESSAGE_BYTES) return;
    const lines = Buffer.concat(this.#rest).toString();
    this.#rest = end === 0 ? [] : [chunk.subarray(end)];
    this.#size = chunk.length - end;
    super.append(Buffer.from(lines.split("\n").map(exactMessage).join("\n")));
  }

  override clear(): void {
    this.#rest = [];
    this.#size = 0;
    super.clear();
  }
}
