/** How much code there is in each room of core/, in tokens: comments and layout do not count, so nothing is gained by wider lines. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import { ROOT } from "../support/command-line.ts";

function tokensOf(path: string): number {
  const tree = ts.createSourceFile(path, readFileSync(path, "utf8"), ts.ScriptTarget.Latest, true, ts.ScriptKind.TS);
  const count = (node: ts.Node): number => {
    if (node.kind >= ts.SyntaxKind.FirstJSDocNode && node.kind <= ts.SyntaxKind.LastJSDocNode) return 0;
    const children = node.getChildren(tree);
    // The end of the file and what the parser adds are tokens without a text.
    if (children.length === 0) return node.getEnd() > node.getStart(tree) ? 1 : 0;
    return children.reduce((sum, child) => sum + count(child), 0);
  };
  return count(tree);
}

/** The tokens of core/ by room, in the order of their names. */
export function tokensByRoom(): Map<string, number> {
  const rooms = new Map<string, number>();
  const core = join(ROOT, "core");
  for (const file of readdirSync(core, { recursive: true, encoding: "utf8" })) {
    if (!file.endsWith(".ts")) continue;
    const room = file.includes("/") ? file.slice(0, file.indexOf("/")) : ".";
    rooms.set(room, (rooms.get(room) ?? 0) + tokensOf(join(core, file)));
  }
  return new Map([...rooms].sort(([one], [other]) => (one < other ? -1 : 1)));
}
