/** Whose code threw, where nobody has called it: the stack of an error says whose timer or event it was. */
import { fileURLToPath } from "node:url";
import { caught } from "../lib/errors.ts";

/** `core/`, or the folder of the bundle. */
const OWN = fileURLToPath(new URL(import.meta.url.endsWith(".ts") ? ".." : ".", import.meta.url));
/** Packages run for those who call them. */
const PACKAGES = "/node_modules/";

/**
 * The file of a plugin that an error began in, or null where that is our own code, or cannot be told. What counts is the outermost
 * call: a plugin's timer that fails within our code is the plugin's, a plugin that fails within a call of ours is not.
 *
 * @param folders of plugins, absolute
 */
export function pluginFileOf(thrown: unknown, folders: readonly string[]): string | null {
  const { stack } = (caught(thrown) ?? {}) as { stack?: unknown };
  if (typeof stack !== "string") return null;
  for (const line of stack.split("\n").reverse()) {
    const file = fileOf(line);
    if (file === null) continue;
    if (folders.some((folder) => isBelow(file, folder))) return file;
    if (isBelow(file, OWN)) return null;
  }
  return null;
}

function isBelow(file: string, folder: string): boolean {
  const base = folder.endsWith("/") ? folder : `${folder}/`;
  return file.startsWith(base) && !file.slice(base.length - 1).includes(PACKAGES);
}

/** Of `    at name (/path/file.ts:1:2)`, `    at async file:///path/file.ts:1:2`. */
function fileOf(line: string): string | null {
  if (!line.startsWith("    at ")) return null;
  const open = line.lastIndexOf("(");
  const place = open === -1 ? line.slice(line.lastIndexOf(" ") + 1) : line.slice(open + 1, -1);
  const [, path] = /^([^?]*)(?:\?[^:]*)?:\d+:\d+$/.exec(place) ?? [];
  if (path === undefined) return null;
  try {
    return path.startsWith("file:") ? fileURLToPath(path) : path;
  } catch {
    return null;
  }
}
