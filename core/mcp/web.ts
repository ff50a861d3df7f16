/** Converts between the requests and replies of the pipeline and `Request` and `Response`, which the SDK uses. */

import type { RawReply } from "../http/route.ts";
import { invalid } from "../lib/errors.ts";
import type { TextSink } from "../lib/event-sink.ts";

/** Headers that the protocol reads. Names of tools and their arguments may be in them too. */
const READ = /^(?:accept|content-type|last-event-id|mcp-[a-z0-9-]+)$/;
const ACCEPTED = "application/json, text/event-stream";
const VISIBLE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** @throws ServiceError `invalid_input` for a header that the protocol does not allow */
export function toWebRequest(method: string, given: Readonly<Record<string, string>>, signal: AbortSignal): Request {
  const headers = new Headers();
  for (const [name, value] of Object.entries(given)) {
    if (!READ.test(name)) continue;
    if (!VISIBLE.test(value)) throw invalid(`header ${name} must not have characters beyond Latin-1`);
    // The SDK wants both named, and some clients send what every HTTP library does.
    headers.set(name, name === "accept" && value.includes("*/*") ? `${value}, ${ACCEPTED}` : value);
  }
  // The SDK does not use the address: the route has been found already.
  return new Request("http://localhost/", { method, headers, signal });
}

/** Headers that belong to one connection, or that the transport writes. */
const OWN = new Set(["connection", "content-length", "date", "keep-alive", "transfer-encoding"]);

/** @param failure writes the last text of a stream that fails */
export async function toRawReply(response: Response, failure: (message: string) => string): Promise<RawReply> {
  const { status, body } = response;
  const headers = [...response.headers].filter(([name]) => !OWN.has(name)).flat();
  if (body === null) return { status, headers, body: null };
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
    return { status, headers, body: await response.text() };
  }
  return { status, headers, stream: (sink) => pump(body, sink), failure };
}

async function pump(body: ReadableStream<Uint8Array>, sink: TextSink): Promise<void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  sink.onLeave(() => void reader.cancel().catch(() => {}));
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const wait = sink.send(decoder.decode(value, { stream: true }));
    if (wait !== undefined) await wait;
  }
}
