/** Reads lines of text from another process, which may never end a line. */
import type { Readable } from "node:stream";

/**
 * Calls back with each line that is not empty, without its line break.
 *
 * @param longest characters of a line; the rest of a longer one is dropped and takes no memory
 */
export function readLines(stream: Readable, longest: number, tell: (line: string) => void): void {
  let line = "";
  const end = () => {
    if (line !== "") tell(line);
    line = "";
  };
  stream.setEncoding("utf8");
  stream.on("data", (text: string) => {
    const [first = "", ...more] = text.split(/\r?\n/);
    line = (line + first.slice(0, longest)).slice(0, longest);
    for (const piece of more) {
      end();
      line = piece.slice(0, longest);
    }
  });
  stream.on("end", end);
}
