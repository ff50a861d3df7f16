/** Describes why a plugin file could not be imported, in one line for its author: no stack, no paths of the loader. */
import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { caught, messageOf } from "../lib/errors.ts";
import { shortPath } from "./problem.ts";

/** The message of esbuild (inside tsx): `/path/add.ts:4:0: ERROR: Unexpected "}"`, with columns from 0. */
const TRANSFORM_ERROR = /:(\d+):(\d+): ERROR: (.+)/g;
const NOT_FOUND = /^Cannot find (?:package|module) '([^']+)'(?: imported from (.+))?/;
/** The name of this package, and a wrong short form of it, which is a package of somebody else. */
const OWN_NAMES = ["penstock-gateway", "penstock"];
const NOT_FOUND_CODES = ["ERR_MODULE_NOT_FOUND", "MODULE_NOT_FOUND"];

/** @param file the plugin; the error may be in a file that it imports */
export function describeImportFailure(thrown: unknown, file: string): string {
  const error = caught(thrown);
  const message = messageOf(error);
  const { code, name, stack } = (error instanceof Error ? error : {}) as NodeJS.ErrnoException;

  const syntax = [...message.matchAll(TRANSFORM_ERROR)].map(
    ([, line, column, text]) => `line ${line}, column ${Number(column) + 1}: ${text}`,
  );
  if (syntax.length > 0) return `syntax error in ${syntax.join("; ")}`;
  const [, line] = stack?.split(`${file}:`) ?? [];
  const at = line === undefined ? "" : ` (line ${parseInt(line, 10)})`;
  // Linking fails with a SyntaxError too, when an import has a name that the other module does not export.
  if (message.startsWith("The requested module")) return `${oneLine(message)}${at}`;
  if (name === "SyntaxError") return `syntax error: ${oneLine(message)}`;

  const missing = NOT_FOUND_CODES.includes(code ?? "") ? NOT_FOUND.exec(message) : null;
  if (missing !== null) return describeMissing(missing[1]!, missing[2], file);

  return `threw while it was imported${at}: ${oneLine(message)}`;
}

function describeMissing(specifier: string, importer: string | undefined, file: string): string {
  const from = importer === undefined || importer === file ? "" : `, which ${shortPath(importer)} imports`;
  if (/^[./]|^file:/.test(specifier)) return `cannot find ${shortPath(specifier)}${from}`;
  const name = specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
  if (OWN_NAMES.includes(name))
    return `there is no ${specifier}${from}: plugins import from "#plugin" or "penstock-gateway/plugin"`;
  const folder = packageFolder(importer ?? file, file);
  const here = folder === process.cwd();
  const place = here ? "" : `--prefix ${/\s/.test(folder) ? JSON.stringify(folder) : shortPath(folder)} `;
  return `package "${name}"${from === "" ? "" : `${from},`} is not installed in ${join(folder, "node_modules")} or a folder above: run npm install ${place}${name}`;
}

/** Where to install a package that a file needs: at the nearest package.json above it, else beside the folder of the plugins. */
function packageFolder(importer: string, file: string): string {
  for (let folder = dirname(importer); folder !== dirname(folder); folder = dirname(folder))
    if (existsSync(join(folder, "package.json"))) return folder;
  const root = dirname(dirname(file));
  return basename(root) === "plugins" ? dirname(root) : root;
}

const oneLine = (text: string) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .join(" ");
