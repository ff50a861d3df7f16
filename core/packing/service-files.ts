/** The files of a service that go where it runs: all beside its manifest but secrets, what it has stored, packages and builds. */
import { closeSync, cpSync, existsSync, openSync, readFileSync, readSync, statSync } from "node:fs";
import { basename, join, relative, sep } from "node:path";

/** Left out: hidden files, which contain keys and history, packages, other keys, and what belongs to a store. */
const LEFT_OUT = /^(\.|env\.|node_modules$)|\.(env|key|p12|pfx)$|-(wal|shm|journal|reserve)$/i;
/** Left out whatever its name is: a store and an export, by how they begin, and what has a private key in lines or in a string of JSON. */
const KEPT_BACK =
  /^(?:SQLite format 3\0|\{"penstock":"export")|^-----BEGIN [A-Z ]*PRIVATE KEY|"-----BEGIN [A-Z ]*PRIVATE KEY-----\\n[\w+/]{16}/m;

/**
 * Copies them, and returns their paths.
 *
 * @param made the folder of this build
 */
export function copyService(from: string, out: string, made: string): string[] {
  const ignored = ignoredBy(join(from, ".penstockignore"));
  const files: string[] = [];
  const filter = (source: string, copy: string): boolean => {
    const path = relative(from, source).split(sep).join("/");
    if (path === "") return true;
    if (LEFT_OUT.test(basename(path)) || source === made || ignored.some((pattern) => pattern.test(path))) return false;
    // A build of Penstock, and an earlier build of a service.
    if (existsSync(join(source, "sbom.cdx.json")) || existsSync(join(source, "dist/sbom.cdx.json"))) return false;
    const kind = statSync(source, { throwIfNoEntry: false });
    if (kind?.isFile() !== true) return kind?.isDirectory() === true;
    if (KEPT_BACK.test(beginOf(source))) return false;
    files.push(relative(out, copy));
    return true;
  };
  cpSync(from, out, { recursive: true, filter, dereference: true });
  return files;
}

/** The first bytes of a file. */
function beginOf(path: string): string {
  const file = openSync(path, "r");
  const bytes = Buffer.alloc(65_536);
  const begin = bytes.toString("latin1", 0, readSync(file, bytes));
  closeSync(file);
  return begin;
}

/** The patterns of a file: names and paths with `*`, `**` and `?`, as in .gitignore, without `!`. */
function ignoredBy(file: string): RegExp[] {
  const isThere = statSync(file, { throwIfNoEntry: false })?.isFile();
  const lines = isThere ? readFileSync(file, "utf8").split("\n") : [];
  const wanted = lines.map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"));
  return wanted.map((line) => {
    const path = line.replace(/\/$/, "");
    const pattern = path
      .replace(/^\//, "")
      .replace(/[.+^${}()|[\]\\]/g, "\\$&")
      .replace(/\*\*|[*?]/g, (each) => (each === "**" ? ".*" : each === "*" ? "[^/]*" : "[^/]"));
    return new RegExp(`^${path.includes("/") ? "" : "(.*/)?"}${pattern}(/|$)`);
  });
}
