/** Reads the head of a native request while it is alive, and refuses heads with ambiguous framing. */
import type { NativeRequest } from "./uws-native.ts";

// Lengths of the relevant header names: comparing numbers first is cheaper than comparing names.
const CONTENT_LENGTH_LENGTH = 14;
const TRANSFER_ENCODING_LENGTH = 17;
const HOST_LENGTH = 4;
const EXPECT_LENGTH = 6;
const DIGITS = /^[0-9]{1,15}$/;

/** 0, or the status of a refusal. */
export type HeadProblem = 0 | 400 | 417 | 431;

/**
 * One object serves all requests of a listener, one after another: its content is valid only during dispatch, which is when heads
 * may be read. One native `forEach` with all checks costs 0.15 us per header and saves 0.1 us per look-up, compared with the native
 * `getHeader`; it is also the only way to detect repeated headers and the size of a head.
 */
export class UwsHead {
  /** Declared length of the body; 0 without one. */
  contentLength = 0;
  chunked = false;
  #size = 0;
  #lengths = 0;
  #encodings = 0;
  #hosts = 0;
  #valid = true;
  #expectable = true;
  #count = 0;
  readonly #pairs: string[] = [];

  /**
   * Reads `request`. Returns 0, or the status of the refusal: 400 for bad framing, 417 for an unknown expectation, 431 for more
   * than `limit` bytes.
   */
  read(request: NativeRequest, path: string, query: string, limit: number): HeadProblem {
    this.contentLength = 0;
    this.chunked = false;
    this.#size = path.length + query.length;
    this.#lengths = 0;
    this.#encodings = 0;
    this.#hosts = 0;
    this.#valid = true;
    this.#expectable = true;
    this.#count = 0;
    request.forEach(this.#take);
    if (this.#size > limit) return 431;
    // Several lengths, a coding other than chunked, or both at once: a proxy may have read the request differently.
    if (!this.#valid || this.#hosts !== 1 || this.#lengths + this.#encodings > 1) return 400;
    return this.#expectable ? 0 : 417;
  }

  readonly #take = (name: string, value: string): void => {
    const at = this.#count;
    this.#pairs[at] = name;
    this.#pairs[at + 1] = value;
    this.#count = at + 2;
    const length = name.length;
    this.#size += length + value.length + 4;
    if (length === HOST_LENGTH) {
      if (name === "host") this.#hosts++;
    } else if (length === EXPECT_LENGTH) {
      if (name === "expect" && value.toLowerCase() !== "100-continue") this.#expectable = false;
    } else if (length === CONTENT_LENGTH_LENGTH) {
      if (name === "content-length") this.#takeLength(value);
    } else if (length === TRANSFER_ENCODING_LENGTH && name === "transfer-encoding") {
      this.#encodings++;
      this.chunked = true;
      if (value !== "chunked") this.#valid = false;
    }
  };

  #takeLength(value: string): void {
    // The same length twice counts as one (RFC 9112, 6.3).
    if (this.#lengths > 0 && Number(value) === this.contentLength && DIGITS.test(value)) return;
    this.#lengths++;
    if (DIGITS.test(value)) this.contentLength = Number(value);
    else this.#valid = false;
  }

  /** The value of a header by its lower-case name, repeated ones joined by `, `; an empty string when absent. */
  get(name: string): string {
    const pairs = this.#pairs;
    let found = "";
    let seen = false;
    for (let at = 0; at < this.#count; at += 2) {
      if (pairs[at] !== name) continue;
      found = seen ? `${found}, ${pairs[at + 1]}` : pairs[at + 1]!;
      seen = true;
    }
    return found;
  }

  /** A copy of all headers. */
  all(): Record<string, string> {
    const copy: Record<string, string> = Object.create(null);
    for (let at = 0; at < this.#count; at += 2) {
      const name = this.#pairs[at]!;
      const before = copy[name];
      copy[name] = before === undefined ? this.#pairs[at + 1]! : `${before}, ${this.#pairs[at + 1]}`;
    }
    return copy;
  }
}
