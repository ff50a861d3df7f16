/** Sets variables in the text of a `.env` file, and leaves the rest unchanged. */

/** The start of an assignment: indent, `export`, the name, `=` and the spaces after it, perhaps after a byte order mark. */
const ASSIGNMENT = /^((?:\u00ef\u00bb\u00bf)?[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*)(.*)$/s;
const COMMENT = /(?<![ \t])[ \t]+#.*$/s;

/**
 * Gives every assignment of a variable the new value; variables without an assignment are added at the end. Line ends, the text before an
 * assignment and the comment after it are kept.
 *
 * @param text each character a byte of the file, so that any encoding is preserved
 * @param values that need no quotes
 */
export function withVariables(text: string, values: Readonly<Record<string, string>>): string {
  const set = new Set<string>();
  const lines = splitStatements(text).map((line) => {
    const end = /\r?\n$/.exec(line)?.[0] ?? "";
    const [, before = "", name = "", given = ""] = ASSIGNMENT.exec(line.slice(0, line.length - end.length)) ?? [];
    if (!Object.hasOwn(values, name)) return line;
    set.add(name);
    return before + values[name] + trailingComment(given) + end;
  });
  const newline = /\r?\n/.exec(text)?.[0] ?? "\n";
  const missing = Object.entries(values).filter(([name]) => !set.has(name));
  const added = missing.map(([name, value]) => `${name}=${value}${newline}`);
  const whole = lines.join("");
  const gap = added.length > 0 && whole !== "" && !whole.endsWith("\n") ? newline : "";
  return whole + gap + added.join("");
}

/** Splits into lines with their ends; a quoted value over several lines is one statement. */
function splitStatements(text: string): string[] {
  const statements: string[] = [];
  for (let at = 0; at < text.length; ) {
    const end = endOfStatement(text, at);
    statements.push(text.slice(at, end));
    at = end;
  }
  return statements;
}

function endOfStatement(text: string, at: number): number {
  const after = (from: number) => {
    const newline = text.indexOf("\n", from);
    return newline === -1 ? text.length : newline + 1;
  };
  const end = after(at);
  const given = ASSIGNMENT.exec(text.slice(at, end))?.[3];
  const quote = given?.[0];
  if (given === undefined || (quote !== '"' && quote !== "'" && quote !== "`")) return end;
  const opened = end - given.length;
  const closed = text.indexOf(quote, opened + 1);
  // A quote without a closing one is a character of the value.
  return closed === -1 ? end : after(closed);
}

/** The comment after a value, which may be in quotes. */
function trailingComment(given: string): string {
  const quote = given[0];
  // The variable has no value.
  if (quote === "#") return ` ${given}`;
  const closed = quote === '"' || quote === "'" || quote === "`" ? given.indexOf(quote, 1) : -1;
  return COMMENT.exec(closed === -1 ? given : given.slice(closed + 1))?.[0] ?? "";
}
