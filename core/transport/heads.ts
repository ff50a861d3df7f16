/** Joins the status line and headers of a reply to one text, for transports that send text. */

import type { HeaderList } from "../http/exchange.ts";
import { STATUS_CODES } from "./node-http.ts";

interface JoinedHead {
  status: number;
  text: string;
}

// Characters that HTTP does not allow. A line break in a value would start a second header, or a second reply.
const INVALID_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
const INVALID_NAME = /[^!#$%&'*+\-.^_`|~0-9A-Za-z]/;

/**
 * Joins heads, and caches the text of header lists that are reused. A list is cached when it is used twice in a row: lists that
 * are made per request never are, and would only fill the map.
 *
 * Measured: one native call for the whole head instead of one per header takes a bare server with four headers from 6.1 to 5.6 us of CPU
 * per request; bytes instead of text are no better.
 */
export class Heads {
  readonly #known = new WeakMap<HeaderList, JoinedHead>();
  #lastUnknown: HeaderList | null = null;

  /** `200 OK\r\ncontent-type: text/plain` for 200 and `["content-type", "text/plain"]`. */
  get(status: number, headers: HeaderList): string {
    const known = this.#known.get(headers);
    if (known !== undefined && known.status === status) return known.text;
    const text = joinHead(status, headers);
    if (this.#lastUnknown === headers) this.#known.set(headers, { status, text });
    else this.#lastUnknown = headers;
    return text;
  }
}

function joinHead(status: number, headers: HeaderList): string {
  let text = `${status} ${STATUS_CODES[status] ?? "Unknown"}`;
  for (let at = 0; at < headers.length; at += 2) {
    const name = headers[at]!;
    const value = headers[at + 1]!;
    if (INVALID_NAME.test(name) || INVALID_VALUE.test(value)) {
      throw new TypeError(`header "${name}" has a name or value that HTTP does not allow`);
    }
    text += `\r\n${name}: ${value}`;
  }
  return text;
}
