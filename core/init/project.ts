/** Makes the files of a new project from a template, and writes them without overwriting anything. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { VERSION } from "../lib/version.ts";

export const TEMPLATES = ["chat", "workflow", "rag"] as const;
export type TemplateName = (typeof TEMPLATES)[number];

const FOLDER = fileURLToPath(new URL("./templates/", import.meta.url));
const ENDING = ".template";
/** Runs the tests of the project; the package itself loads plugins with it. */
const TSX = "^4.20.0";

/** File contents by path. A file of the template overrides a common one. */
export function projectFiles(template: TemplateName | "openapi", values: Record<string, string>): Map<string, string> {
  const known: Record<string, string> = { VERSION, TSX, ...values };
  const fill = (text: string) => text.replace(/%([A-Z]+)%/g, (whole, name: string) => known[name] ?? whole);
  const files = ["common", template].flatMap((folder) => {
    const root = join(FOLDER, folder);
    return readdirSync(root, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.name.endsWith(ENDING))
      .map((entry) => join(entry.parentPath, entry.name))
      .map((path): [string, string] => {
        const name = relative(root, path).split(sep).join("/").slice(0, -ENDING.length);
        return [name, fill(readFileSync(path, "utf8"))];
      });
  });
  return new Map(files.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Derives a valid npm package name from that of the folder. */
export function packageName(folder: string): string {
  const name = folder
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, "-")
    .replace(/^[._-]+|[._-]+$/g, "")
    .slice(0, 100);
  return name === "" ? "service" : name;
}

/** @throws Error that names the files that exist already; then nothing is written */
export async function writeProject(folder: string, files: ReadonlyMap<string, string>): Promise<void> {
  const taken = [...files.keys()].filter((name) => existsSync(join(folder, name)));
  if (taken.length > 0)
    throw new Error(`${taken.join(", ")} ${taken.length === 1 ? "is" : "are"} there already: init overwrites nothing`);
  for (const [name, text] of files) {
    const path = join(folder, name);
    await mkdir(dirname(path), { recursive: true });
    // Fails for a file that was created meanwhile, instead of overwriting it.
    await writeFile(path, text, { flag: "wx" });
  }
}
