/** Reads server-sent events from the body of a `fetch`, since `EventSource` can neither POST nor send headers. */

/**
 * @template T
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} body
 * @returns {AsyncGenerator<{ id: string, data: T }>} `data` is parsed; lines that are not JSON, such as `[DONE]`, are left out
 */
export async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = eventOf(block);
        if (event !== null) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @param {string} block */
function eventOf(block) {
  let id = "";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) id = line.slice(4);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  try {
    return data === "" ? null : { id, data: JSON.parse(data) };
  } catch {
    return null;
  }
}
