// Hooks of `import` for sources.mjs. Node.js 20 runs them in a thread of their own, as it does those of tsx.
import { readFileSync } from "node:fs";
import { isBuiltin } from "node:module";

const ROOT = new URL("..", import.meta.url).href;
/** The JavaScript of each source, by the URL of the source. */
let translated = new Map();
let tsx;

export function initialize(list) {
  translated = new Map(JSON.parse(readFileSync(list, "utf8")));
}

/** tsx in this thread, once something needs it: most processes do not, and it takes a third of a second. */
function withTsx() {
  tsx ??= import("tsx/esm").then(async (hooks) => {
    await hooks.initialize({});
    return hooks;
  });
  return tsx;
}

/** Whether a file is left to tsx: what lies outside of the checkout, such as plugins that tests write, but not the modules of the runner. */
function isForeign(url) {
  if (translated.has(url) || !url.startsWith("file:") || url.endsWith(".test.mjs")) return false;
  return !url.startsWith(ROOT) || /\.[mc]?tsx?(\?|$)/.test(url);
}

export async function resolve(specifier, context, next) {
  if (isBuiltin(specifier)) return next(specifier, context);
  const isPath = /^(\.\.?\/|file:)/.test(specifier) && URL.canParse(specifier, context.parentURL);
  const url = isPath ? new URL(specifier, context.parentURL).href : "";
  if (translated.has(url)) return { url, format: "module", shortCircuit: true };
  const hooks = isForeign(url) || isForeign(context.parentURL ?? "") ? await withTsx() : undefined;
  return hooks === undefined ? next(specifier, context) : hooks.resolve(specifier, context, next);
}

export async function load(url, context, next) {
  const file = translated.get(url);
  if (file !== undefined) return { format: "module", source: readFileSync(file, "utf8"), shortCircuit: true };
  return isForeign(url) ? (await withTsx()).load(url, context, next) : next(url, context);
}
