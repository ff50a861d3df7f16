/** Maps a character of a YAML text to its place in the source, where the text may be quoted, escaped, folded or indented. */

/** Length of the digits of YAML's longer escapes in double quotes. */
const LONG_ESCAPES: Readonly<Record<string, number>> = { x: 4, u: 6, U: 10 };
const BLANKS = /[ \t\r\n]*/y;
/** The header of a block scalar, such as `|` or `>-`, up to the end of its line. */
const BLOCK_HEADER = /^[|>][^\n]*\n/;

/**
 * Walks through both texts in parallel. White space around line breaks may differ, because YAML folds it and removes the indentation: a
 * run of it on one side matches a run on the other.
 *
 * @param source the scalar as written in the file
 * @param value its value in YAML
 * @param offset of a character of `value`
 * @returns its offset in `source`; null when the two do not match
 */
export function sourceOffset(source: string, value: string, offset: number): number | null {
  const quote = source[0] === '"' || source[0] === "'" ? source[0] : "";
  const header = BLOCK_HEADER.exec(source);
  let at = quote.length;
  if (header !== null) at = endOfBlanks(source, header[0].length) - (value.length - value.trimStart().length);
  let index = 0;
  while (index < offset) {
    if (quote === '"' && source[at] === "\\") {
      if (source[at + 1] === "\n" || source[at + 1] === "\r") {
        at = endOfBlanks(source, at + 1);
        continue;
      }
      const length = LONG_ESCAPES[source[at + 1]!] ?? 2;
      const isPair = length === 10 && value.codePointAt(index)! > 0xffff;
      at += length;
      index += isPair ? 2 : 1;
      continue;
    }
    const end = endOfBlanks(source, at);
    if (end > at && source.slice(at, end).includes("\n")) {
      const resumed = endOfBlanks(value, index);
      if (resumed > offset) return at;
      at = end;
      index = resumed;
      continue;
    }
    if (source[at] === undefined || source[at] !== value[index]) return null;
    at += quote === "'" && source[at] === "'" ? 2 : 1;
    index++;
  }
  return at;
}

function endOfBlanks(text: string, start: number): number {
  BLANKS.lastIndex = start;
  BLANKS.test(text);
  return BLANKS.lastIndex;
}
