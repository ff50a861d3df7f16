/** Finds `{{ }}` in text. The end of an expression is found by tokens: `{{ {"a": {}} }}` is one. */

export interface ExpressionPiece {
  /** Between the braces, spaces included. */
  source: string;
  /** Characters from the start of the text. */
  offset: number;
}

export type Split = { pieces: (string | ExpressionPiece)[] } | { problem: string; offset: number };

export const hasTemplate = (text: string): boolean => text.includes("{{");

/** Text and expressions in turn; no empty texts. */
export function splitTemplate(text: string): Split {
  const pieces: (string | ExpressionPiece)[] = [];
  let position = 0;
  for (;;) {
    const open = text.indexOf("{{", position);
    if (open < 0) break;
    const start = open + 2;
    const end = endOfExpression(text, start);
    if (end < 0) return { problem: 'a "{{" is not closed by "}}"', offset: open };
    if (open > position) pieces.push(text.slice(position, open));
    pieces.push({ source: text.slice(start, end), offset: start });
    position = end + 2;
  }
  if (position < text.length) pieces.push(text.slice(position));
  return { pieces };
}

/** A string literal (triple ones may hold line breaks), a comment, a word, or any one character. */
const TOKEN = new RegExp(
  [
    /[bBrR]{0,2}(?:"""(?:\\[\s\S]|[^\\])*?"""|'''(?:\\[\s\S]|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')/,
    /\/\/[^\n]*/,
    /[A-Za-z_]\w*/,
    /[\s\S]/,
  ]
    .map(({ source }) => source)
    .join("|"),
  "y",
);

/** Index of the `}}` that ends the expression which begins at `start`; -1 when there is none. */
function endOfExpression(text: string, start: number): number {
  let depth = 0;
  let position = start;
  while (position < text.length) {
    if (depth === 0 && text.startsWith("}}", position)) return position;
    TOKEN.lastIndex = position;
    const token = TOKEN.exec(text)![0];
    if (token === "{") depth++;
    if (token === "}") depth = Math.max(0, depth - 1);
    position += token.length;
  }
  return -1;
}
