import { readdirSync } from "node:fs";
import { join } from "node:path";

/** All files below a folder, as absolute paths if `folder` is absolute. Skips folders of packages. */
export function filesBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === "node_modules" ? [] : filesBelow(path);
    return [path];
  });
}
