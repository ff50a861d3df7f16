/** Collects a request body from native chunks. */
import { BodyBuffer } from "./body.ts";
import type { NativeResponse } from "./uws-native.ts";

/**
 * Calls `end` once: with the whole body, or with null as soon as it is larger than `limit`, when all of it is let go and
 * what still arrives is not looked at.
 */
export function collectBody(response: NativeResponse, limit: number, end: (body: Uint8Array | null) => void): void {
  let buffer: BodyBuffer | null = null;
  let ended = false;
  response.onData((native, last) => {
    if (ended) return;
    const chunk = new Uint8Array(native);
    // The usual case, one piece: one copy, because the native bytes go away.
    if (last && buffer === null && chunk.length <= limit) {
      ended = true;
      return end(Buffer.from(chunk));
    }
    buffer ??= new BodyBuffer(limit);
    const fits = buffer.add(chunk);
    if (fits && !last) return;
    ended = true;
    end(fits ? buffer.take() : null);
    buffer = null;
  });
}
