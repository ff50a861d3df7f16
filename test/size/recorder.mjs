// Preloaded, before tsx, into a process that notes which functions of core/ it runs: each tells `globalThis.entered` that it begins.
// It is also the loader that writes these calls into the sources as they are imported.
import { register } from "node:module";
import { isMainThread } from "node:worker_threads";

/** In the thread of the loader alone: it takes a thread half a second. */
const { default: ts } = isMainThread ? {} : await import("typescript");
const CORE = new URL("../../core/", import.meta.url).href;

if (isMainThread && globalThis.entered === undefined) {
  globalThis.entered = () => undefined;
  register(import.meta.url);
}

/** A function without a name of its own has that of what it is assigned to. */
function nameOf(node, tree) {
  if (ts.isConstructorDeclaration(node)) return node.parent.name?.getText(tree) ?? "constructor";
  return node.name?.getText(tree) ?? node.parent.name?.getText(tree) ?? "anonymous";
}

/** What is to be written at which positions, so that each function begins with its call. */
function insertions(file, tree) {
  const all = [];
  const visit = (node) => {
    if (ts.isFunctionLike(node) && node.body !== undefined) {
      const call = `globalThis.entered(${JSON.stringify(`${file}:${nameOf(node, tree)}`)})`;
      const extending =
        ts.isConstructorDeclaration(node) &&
        node.parent.heritageClauses?.some(({ token }) => token === ts.SyntaxKind.ExtendsKeyword);
      const start = node.body.getStart(tree);
      if (!ts.isBlock(node.body)) all.push([start, `(${call},`], [node.body.getEnd(), ")"]);
      else if (!extending) all.push([start + 1, `${call};`]);
    }
    ts.forEachChild(node, visit);
  };
  visit(tree);
  return all.sort(([one], [other]) => one - other);
}

export async function load(url, context, next) {
  const loaded = await next(url, context);
  if (!url.startsWith(CORE) || !/\.ts(\?|$)/.test(url) || loaded.source == null) return loaded;
  const text = loaded.source.toString();
  const file = url.slice(CORE.length).split("?")[0];
  const tree = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true, ts.ScriptKind.TS);
  let source = "";
  let from = 0;
  for (const [position, insert] of insertions(file, tree)) {
    source += text.slice(from, position) + insert;
    from = position;
  }
  return { ...loaded, source: source + text.slice(from) };
}
