/** Splits text at `{{ }}`. An expression is read token by token to find its end: `{{ {"a": {}} }}` is one expression. */

interface ExpressionPiece {
  /** The text between the braces, including spaces. */
  source: string;
  /** Characters from the start of the text. */
  offset: number;
}

type Split = { pieces: (string | ExpressionPiece)[] } | { problem: string; offset: number };

export const hasTemplate = (text: string): boolean => text.includes("{{");

/** Splits the text into plain pieces and expressions; no piece is empty. */
export function splitTemplate(text: string): Split {
  const pieces: (string | ExpressionPiece)[] = [];
  const unclosed: Unclosed = new Map();
  let position = 0;
  for (;;) {
    const open = text.indexOf("{{", position);
    if (open < 0) break;
    const start = open + 2;
    const end = endOfExpression(text, start, unclosed);
    if (end < 0) return { problem: 'a "{{" is not closed by "}}"', offset: open };
    if (open > position) pieces.push(text.slice(position, open));
    pieces.push({ source: text.slice(start, end), offset: start });
    position = end + 2;
  }
  if (position < text.length) pieces.push(text.slice(position));
  return { pieces };
}

/** String literals of CEL; triple-quoted ones, which may contain line breaks, first. `rest` matches what follows the opening quote. */
const LITERALS = [
  { quote: '"""', rest: /(?:\\[\s\S]|[^\\])*?"""/y },
  { quote: "'''", rest: /(?:\\[\s\S]|[^\\])*?'''/y },
  { quote: '"', rest: /(?:\\.|[^"\\\n])*"/y },
  { quote: "'", rest: /(?:\\.|[^'\\\n])*'/y },
];

/** A comment, a word, or any one character. */
const TOKEN = /\/\/[^\n]*|[A-Za-z_]\w*|[\s\S]/y;

/**
 * For each kind of quote, the index up to which no literal that starts with it is terminated. It keeps the work linear: the text is not
 * searched twice for the same closing quote.
 */
type Unclosed = Map<string, number>;

/** Index of the `}}` that ends the expression which begins at `start`; -1 when there is none. */
function endOfExpression(text: string, start: number, unclosed: Unclosed): number {
  let depth = 0;
  let position = start;
  while (position < text.length) {
    if (depth === 0 && text.startsWith("}}", position)) return position;
    const literal = endOfLiteral(text, position, unclosed);
    if (literal > position) {
      position = literal;
      continue;
    }
    TOKEN.lastIndex = position;
    const token = TOKEN.exec(text)![0];
    if (token === "{") depth++;
    if (token === "}") depth = Math.max(0, depth - 1);
    position += token.length;
  }
  return -1;
}

/** Index after the literal that begins at `start`; `start` itself when none begins there, or when it is not terminated. */
function endOfLiteral(text: string, start: number, unclosed: Unclosed): number {
  for (const { quote, rest } of LITERALS) {
    if (!text.startsWith(quote, start) || start < (unclosed.get(quote) ?? 0)) continue;
    rest.lastIndex = start + quote.length;
    if (rest.test(text)) return rest.lastIndex;
    const newline = quote.length === 1 ? text.indexOf("\n", start) : -1;
    unclosed.set(quote, newline === -1 ? text.length : newline);
  }
  return start;
}
