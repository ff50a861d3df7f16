/** Finds a character of a YAML text in the source, where it may be quoted, escaped, folded or indented. */

/** Escapes of YAML's double quotes that are longer than two characters. */
const LONG_ESCAPES: Readonly<Record<string, number>> = { x: 4, u: 6, U: 10 };
const BLANKS = /[ \t\r\n]*/y;
/** `|`, `>-` and so on, up to the line's end. */
const BLOCK_HEADER = /^[|>][^\n]*\n/;

/**
 * Walks through both at once. White space with a line break in it may differ, since YAML folds it and cuts the indentation: a run of it
 * on one side is a run on the other.
 *
 * @param source the scalar as it stands in the file
 * @param value what YAML makes of it
 * @param offset of a character of `value`
 * @returns its offset in `source`; null when the two do not go together
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
