/** All files below a folder. */
import { readdirSync } from "node:fs";
import { join } from "node:path";

/** Absolute paths, where `folder` is absolute. Folders of packages are not entered. */
export function filesBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === "node_modules" ? [] : filesBelow(path);
    return [path];
  });
}
