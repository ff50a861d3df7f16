/** Lines of text that somebody else writes, who may write for ever without ending one. */
import type { Readable } from "node:stream";

/**
 * Tells each line that is not empty, without its end.
 *
 * @param longest characters of a line; what follows them is left out, and never kept
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
