/** Collects a request body from native chunks. */
import type { BodyProblem } from "../http/exchange.ts";
import type { BodyBuffer } from "./body.ts";
import type { NativeResponse } from "./uws-native.ts";

/**
 * Calls `end` once: with the whole body, or with its problem as soon as that is known. Chunks that arrive later, or after the
 * buffer was dropped, are ignored.
 */
export function collectBody(
  response: NativeResponse,
  buffer: BodyBuffer,
  end: (body: Uint8Array | BodyProblem) => void,
): void {
  let ended = false;
  response.onData((native, last) => {
    if (ended || buffer.dropped) return;
    const problem = buffer.add(new Uint8Array(native), last);
    if (problem === null && !last) return;
    ended = true;
    end(problem ?? buffer.takeAll());
  });
}
