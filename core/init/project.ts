/** Makes the files of a new project from a template, and adds them to a folder without overwriting anything. */
import { existsSync, lstatSync, readdirSync, readFileSync, statSync } from "node:fs";
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { PROJECT, VERSION } from "../lib/version.ts";

export const TEMPLATES = ["chat", "workflow", "rag"] as const;
export type TemplateName = (typeof TEMPLATES)[number];

const FOLDER = fileURLToPath(new URL("./templates/", import.meta.url));
const ENDING = ".template";
/** Runs the tests of the project; the package itself loads plugins with it. */
const TSX = "^4.20.0";

/** File contents by path. A file of the template overrides a common one. */
export function projectFiles(template: TemplateName | "openapi", values: Record<string, string>): Map<string, string> {
  const known: Record<string, string> = { TSX, PENSTOCK: ownPackage().asked, ...values };
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

/** How a project asks npm for the Penstock that makes it, and the tarball that it then takes along. */
function ownPackage(): { asked: string; tarball?: string } {
  const [, modules, name] = /^(.*[\\/]node_modules)[\\/]([^\\/]+)/.exec(PROJECT) ?? [];
  if (modules === undefined)
    return { asked: existsSync(join(PROJECT, "core/init/project.ts")) ? `file:${resolve(PROJECT)}` : VERSION };
  const tarball = tarballOf(name!, modules);
  return tarball === undefined ? { asked: VERSION } : { asked: `file:${basename(tarball)}`, tarball };
}

/** The tarball from which npm has installed a package, as its list of the folder says. */
function tarballOf(name: string, modules: string): string | undefined {
  try {
    const { packages } = JSON.parse(readFileSync(join(modules, ".package-lock.json"), "utf8"));
    const [, path] = /^file:(.+\.tgz)$/.exec(packages[`node_modules/${name}`].resolved) ?? [];
    const tarball = path === undefined ? undefined : resolve(dirname(modules), path);
    return tarball !== undefined && existsSync(tarball) ? tarball : undefined;
  } catch {
    // Other package managers have no such list.
    return undefined;
  }
}

/** Files that a repository may have already: what is missing in them is added. */
const ADDED_TO: Readonly<Record<string, (own: string, more: string) => string>> = {
  ".gitignore": addLines,
  "package.json": addEntries,
};
/** What it may have too, and keeps. */
const LEFT = ["README.md", "Dockerfile", ".dockerignore", ".penstockignore", ".env.example", "tsconfig.json"];

function addLines(own: string, more: string): string {
  const known = new Set(own.split(/\r?\n/));
  const missing = more.split("\n").filter((line) => line !== "" && !known.has(line));
  return missing.length === 0 ? own : `${own}${own === "" || own.endsWith("\n") ? "" : "\n"}${missing.join("\n")}\n`;
}

/** Adds what the project needs to run; nothing that is there is changed. @throws Error that names the file */
function addEntries(own: string, more: string): string {
  const [known, added] = [parseObject(own), parseObject(more)];
  for (const part of ["scripts", "imports", "dependencies", "devDependencies", "allowScripts"])
    known[part] = { ...(added[part] as object), ...(isObject(known[part]) ? known[part] : {}) };
  return `${JSON.stringify(known, null, /\n([ \t]+)"/.exec(own)?.[1] ?? 2)}\n`;
}

function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (isObject(value)) return value;
  } catch (error) {
    throw new Error(`package.json: ${messageOf(error)}`, { cause: error });
  }
  throw new Error("package.json must be an object");
}

/**
 * @returns a line for each file: what was written, added to, or left as it is
 * @throws Error that names the files that exist already; then nothing is written
 */
export async function writeProject(folder: string, files: ReadonlyMap<string, string>): Promise<string[]> {
  // A link that leads nowhere is something too.
  const exists = (name: string) => lstatSync(join(folder, name), { throwIfNoEntry: false }) !== undefined;
  const own = (name: string) =>
    (name in ADDED_TO || LEFT.includes(name)) &&
    statSync(join(folder, name), { throwIfNoEntry: false })?.isFile() === true;
  const taken = [...files.keys()].filter((name) => exists(name) && !own(name));
  if (taken.length > 0)
    throw new Error(`${taken.join(", ")} ${taken.length === 1 ? "is" : "are"} there already: init overwrites nothing`);
  const texts = [...files].map(([name, text]): [string, string, boolean] =>
    own(name) && name in ADDED_TO
      ? [name, ADDED_TO[name]!(readFileSync(join(folder, name), "utf8"), text), true]
      : [name, text, own(name)],
  );
  const lines: string[] = [];
  // What is in the way of a folder is found before anything is written.
  for (const name of files.keys()) await mkdir(dirname(join(folder, name)), { recursive: true });
  for (const [name, text, isOwn] of texts) {
    const path = join(folder, name);
    if (isOwn && !(name in ADDED_TO)) {
      lines.push(`${name} (left as it is)`);
      continue;
    }
    // Fails for a file that was created meanwhile, instead of overwriting it.
    await writeFile(path, text, isOwn ? {} : { flag: "wx" });
    lines.push(isOwn ? `${name} (added to)` : name);
  }
  const { tarball } = ownPackage();
  if (tarball !== undefined && !exists(basename(tarball))) {
    await copyFile(tarball, join(folder, basename(tarball)));
    lines.push(basename(tarball));
  }
  return lines;
}
