/** Whole replies over a native response that is corked; it is over when these return. */
import { UwsFlow, type UwsFlows } from "./uws-flow.ts";
import type { NativeResponse } from "./uws-native.ts";

/** Status, header lines and body: two native calls. The addon adds content-length and date. */
export function sendWhole(response: NativeResponse, head: string, body: string | Uint8Array, close: boolean): void {
  response.writeStatus(head);
  if (close) response.end(body, true);
  else response.end(body);
}

/** The head of the same reply without its body: HEAD, 204 and 304. */
export function sendHead(
  response: NativeResponse,
  status: number,
  head: string,
  body: string | Uint8Array | null,
  close: boolean,
): void {
  let lines = head;
  if (status !== 204) lines += `\r\ncontent-length: ${body === null ? 0 : Buffer.byteLength(body)}`;
  // It is for the client to end the connection here: endWithoutBody cannot be told to without a length of its own.
  if (close) lines += "\r\nconnection: close";
  response.writeStatus(lines);
  response.endWithoutBody();
}

/** Bytes of a body from which on it may not fit into what the kernel takes: what the addon corks. */
export const LARGE_BODY_BYTES = 16 * 1024;

/** A large body, which the addon is given as its reader takes it: the native response lives until `done` is called. */
export class LargeReply extends UwsFlow {
  readonly #body: Uint8Array;
  readonly #done: () => void;

  constructor(flows: UwsFlows, response: NativeResponse, body: string | Uint8Array, done: () => void) {
    super(flows, response);
    this.#body = typeof body === "string" ? Buffer.from(body) : body;
    this.#done = done;
  }

  /** Corked. */
  send(head: string): void {
    this.response.writeStatus(head);
    if (!this.push()) this.block();
  }

  protected push(): boolean {
    const { response } = this;
    const [, done] = response.tryEnd(this.#body.subarray(response.getWriteOffset()), this.#body.length);
    if (done) this.#done();
    return done;
  }
}
