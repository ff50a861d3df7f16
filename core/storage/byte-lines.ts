/** Lines of bytes, each with its line feed; of the last one it may be missing. */

/** No line of an export is longer: what the API takes in is far smaller. */
const MAX_LINE_BYTES = 256 * 1024 * 1024;
const LINE_FEED = 0x0a;

/** @throws Error with a message for the user when a line is too long */
export async function* linesOf(input: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer, undefined> {
  let begun: Buffer[] = [];
  let size = 0;
  for await (const bytes of input) {
    const chunk = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let from = 0;
    for (let at = chunk.indexOf(LINE_FEED); at !== -1; at = chunk.indexOf(LINE_FEED, from)) {
      const rest = chunk.subarray(from, at + 1);
      yield begun.length === 0 ? rest : Buffer.concat([...begun, rest]);
      begun = [];
      size = 0;
      from = at + 1;
    }
    if (from === chunk.length) continue;
    begun.push(chunk.subarray(from));
    size += chunk.length - from;
    if (size > MAX_LINE_BYTES) throw new Error(`a line is longer than ${MAX_LINE_BYTES} bytes`);
  }
  if (begun.length > 0) yield Buffer.concat(begun);
}
