/** Sends whole replies over a native response. */
import { UwsFlow, type UwsFlows } from "./uws-flow.ts";
import type { NativeResponse } from "./uws-native.ts";

/** Sends status, headers and body in two native calls. The addon adds content-length and date. The response must be corked. */
export function sendWhole(response: NativeResponse, head: string, body: string | Uint8Array, close: boolean): void {
  response.writeStatus(head);
  if (close) response.end(body, true);
  else response.end(body);
}

/** Sends status and headers only: for HEAD, 204 and 304. */
export function sendHead(
  response: NativeResponse,
  status: number,
  head: string,
  body: string | Uint8Array | null,
  close: boolean,
): void {
  let lines = head;
  if (status !== 204) lines += `\r\ncontent-length: ${body === null ? 0 : Buffer.byteLength(body)}`;
  // The client must close the connection: endWithoutBody can only do so together with a length.
  if (close) lines += "\r\nconnection: close";
  response.writeStatus(lines);
  response.endWithoutBody();
}

/** The size of the addon's cork buffer. A longer body may exceed what the kernel accepts at once. */
export const LARGE_BODY_BYTES = 16 * 1024;

/** A large body, passed to the addon as fast as the reader accepts it: the native response lives until `done` is called. */
export class LargeReply extends UwsFlow {
  readonly #body: Uint8Array;
  readonly #done: () => void;

  constructor(flows: UwsFlows, response: NativeResponse, body: string | Uint8Array, done: () => void) {
    super(flows, response);
    this.#body = typeof body === "string" ? Buffer.from(body) : body;
    this.#done = done;
  }

  /** The response must be corked. */
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
