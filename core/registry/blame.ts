/** Finds the plugin that caused an uncaught error: the stack shows whose timer or event handler threw it. */
import { fileURLToPath } from "node:url";
import { caught } from "../lib/errors.ts";

/** `core/`, or the folder of the bundle. */
const OWN = fileURLToPath(new URL(import.meta.url.endsWith(".ts") ? ".." : ".", import.meta.url));
/** Frames in packages are attributed to their caller. */
const PACKAGES = "/node_modules/";

/**
 * The plugin file that an error comes from, or null when it comes from our own code or the stack does not tell. The outermost frame
 * decides: an error in our code under a plugin's timer is the plugin's, an error in a plugin that we called is ours.
 *
 * @param folders of plugins, absolute
 */
export function pluginFileOf(thrown: unknown, folders: readonly string[]): string | null {
  const { stack } = (caught(thrown) ?? {}) as { stack?: unknown };
  if (typeof stack !== "string") return null;
  for (const line of stack.split("\n").reverse()) {
    const file = fileInFrame(line);
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

/** The file in a frame such as `    at name (/path/file.ts:1:2)` or `    at async file:///path/file.ts:1:2`. */
function fileInFrame(line: string): string | null {
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
