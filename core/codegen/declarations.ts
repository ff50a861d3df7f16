/**
 * Writes the types of `penstock-gateway/plugin` for users of the npm package: declarations of our own files, and of the files of
 * packages to which they refer, so that a plugin type checks without these packages.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import { dirname, join, relative, sep } from "node:path";
import ts from "typescript";

const ENTRY = "core/plugin/plugin.ts";
const PACKAGES = "/node_modules/";
const SPECIFIER = /(\bfrom\s*|\bimport\s*\(\s*|\bimport\s+(?:\w+\s*=\s*require\s*\(\s*)?)(["'])([^"'\n]+)\2/g;

const OPTIONS: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2023,
  lib: ["lib.es2024.d.ts"],
  module: ts.ModuleKind.NodeNext,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
  types: ["node"],
  strict: true,
  declaration: true,
  emitDeclarationOnly: true,
  allowImportingTsExtensions: true,
  noCheck: true,
};

/** @returns the path of the entry's declarations below `out` */
export function writeDeclarations(root: string, out: string): string {
  const options = { ...OPTIONS, rootDir: root };
  const host = ts.createCompilerHost(options);
  const program = ts.createProgram([join(root, ENTRY)], options, host);
  const waiting = [join(root, ENTRY)];
  const seen = new Set(waiting);
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    // A file that a package names only under other conditions is not part of the program.
    const file = program.getSourceFile(path) ?? host.getSourceFile(path, ts.ScriptTarget.ESNext)!;
    const written = placeOf(root, path);
    const text = declarationsOf(program, file).replace(
      SPECIFIER,
      (whole, before: string, quote: string, specifier: string) => {
        const named = resolveImport(specifier, file, options, host);
        if (named === null) return whole;
        if (!seen.has(named)) waiting.push(named);
        seen.add(named);
        const target = relative(dirname(written), placeOf(root, named)).split(sep).join("/");
        const place = (target.startsWith(".") ? target : `./${target}`).replace(/\.d\.([cm]?)ts$/, ".$1js");
        return `${before}${quote}${place}${quote}`;
      },
    );
    writeText(join(out, written), text);
    // The package.json above a file says whether it is CommonJS.
    if (path.includes(PACKAGES) && file.impliedNodeFormat !== ts.ModuleKind.ESNext) {
      const [scope, name] = written.split("/").slice(1);
      const folder = scope!.startsWith("@") ? `packages/${scope}/${name}` : `packages/${scope}`;
      writeText(join(out, folder, "package.json"), '{ "type": "commonjs" }\n');
    }
  }
  return placeOf(root, join(root, ENTRY));
}

function declarationsOf(program: ts.Program, file: ts.SourceFile): string {
  if (file.isDeclarationFile) return readFileSync(file.fileName, "utf8");
  let text = "";
  program.emit(
    file,
    (_name, emitted) => {
      text = emitted;
    },
    undefined,
    true,
  );
  return text;
}

/** The file that an import names; null for Node's own modules, whose types every project has. */
function resolveImport(
  specifier: string,
  file: ts.SourceFile,
  options: ts.CompilerOptions,
  host: ts.CompilerHost,
): string | null {
  if (isBuiltin(specifier)) return null;
  const found = ts.resolveModuleName(
    specifier,
    file.fileName,
    options,
    host,
    undefined,
    undefined,
    file.impliedNodeFormat,
  );
  if (found.resolvedModule === undefined)
    throw new Error(`${file.fileName}: no types of "${specifier}", which plugins are given`);
  return found.resolvedModule.resolvedFileName;
}

/** `core/lib/errors.d.ts`; for packages `packages/pino/pino.d.ts`, because npm leaves out a folder named `node_modules`. */
function placeOf(root: string, file: string): string {
  const packages = file.lastIndexOf(PACKAGES);
  const path = packages === -1 ? relative(root, file) : `packages/${file.slice(packages + PACKAGES.length)}`;
  return path.replace(/(?<!\.d)\.ts$/, ".d.ts");
}

function writeText(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}
