/** Whole replies over a native response that is corked; it is over when these return. */
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
