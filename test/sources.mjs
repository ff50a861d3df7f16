// Translates the TypeScript of this checkout once, for all processes of a run on Node.js 20: there tsx takes each of them half a second.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";

const FOLDERS = ["core", "generated", "plugins", "test", "bench"];
/** What imports most of core. Loading those 600 modules one by one takes a process a third of a second, and all in one file a tenth. */
const START = "core/app/start.ts";
/** Where that file seems to be: what it imports is found from here. */
const TOGETHER = "core/together.mjs";

const OPTIONS = {
  write: false,
  format: "esm",
  target: "node20",
  sourcemap: "inline",
  sourcesContent: false,
  tsconfigRaw: "{}",
  logLevel: "error",
};

const urlOf = (path) => pathToFileURL(resolve(path)).href;

/** The TypeScript that `path` imports, and what that imports, but for what is loaded later, if at all. */
function importedBy(path, modules, found = new Set()) {
  if (found.has(path) || !modules.has(path)) return found;
  found.add(path);
  for (const { kind, path: name } of modules.get(path).imports)
    if (kind === "import-statement" && name.startsWith(".")) importedBy(join(dirname(path), name), modules, found);
  return found;
}

/** One module with all exports of `paths`, each as `mINDEX_NAME`: there is one copy of every class and every table. */
async function bundle(paths, modules) {
  const lines = paths.map((path, index) => {
    const names = modules.get(path).exports.map((name) => `${name} as m${index}_${name}`);
    return `export { ${names.join(", ")} } from "./${path}";`;
  });
  const inside = new Set(paths.map((path) => resolve(path)));
  const plugin = {
    name: "sources",
    setup({ onResolve, onLoad }) {
      // All else is a module of its own, and every file goes by its own URL.
      onResolve({ filter: /^\./ }, ({ kind, resolveDir, path }) => {
        const file = join(resolveDir, path);
        return kind !== "dynamic-import" && inside.has(file) ? undefined : { path: urlOf(file), external: true };
      });
      onLoad({ filter: /\.ts$/ }, ({ path }) => ({
        contents: readFileSync(path, "utf8").replaceAll("import.meta.url", JSON.stringify(urlOf(path))),
        loader: "ts",
      }));
    },
  };
  const { outputFiles } = await build({
    ...OPTIONS,
    stdin: { contents: lines.join("\n"), resolveDir: "." },
    bundle: true,
    platform: "node",
    packages: "external",
    outfile: TOGETHER,
    // Who runs the files by name sees the lines of the sources.
    sourcemap: false,
    plugins: [plugin],
  });
  return outputFiles[0].text;
}

/** Translates into an empty folder. @returns the module for `node --import`, in the place of tsx */
export async function translateSources(folder) {
  const paths = FOLDERS.flatMap((name) => readdirSync(name, { recursive: true }).map((path) => join(name, path)));
  const sources = paths.filter((path) => path.endsWith(".ts") && !path.endsWith(".d.ts"));
  // Beside the sources, whose URLs the modules have.
  const { outputFiles, metafile } = await build({ ...OPTIONS, entryPoints: sources, outdir: ".", metafile: true });
  const texts = new Map(outputFiles.map(({ path, text }) => [relative(".", path).replace(/\.js$/, ".ts"), text]));
  const modules = new Map(Object.values(metafile.outputs).map((output) => [output.entryPoint, output]));
  const together = [...importedBy(START, modules)];
  // Node.js would read every map in every process, and look up each line of every stack that is asked for.
  const plain = [...texts].map(([path, text]) => [path, text.slice(0, text.lastIndexOf("//# sourceMappingURL="))]);
  const joined = new Map([...plain, [TOGETHER, await bundle(together, modules)]]);
  together.forEach((path, index) => {
    const names = modules.get(path).exports.map((name) => `m${index}_${name} as ${name}`);
    joined.set(path, `export { ${names.join(", ")} } from ${JSON.stringify(urlOf(TOGETHER))};\n`);
  });
  /** @returns a list of what stands for each URL */
  const write = (name, modules) => {
    const list = [...modules].map(([path, text]) => {
      const file = resolve(folder, name, `${path}.js`);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, text);
      return [urlOf(path), file];
    });
    const listFile = resolve(folder, `${name}.json`);
    writeFileSync(listFile, JSON.stringify(list));
    return listFile;
  };
  const lists = { together: write("together", joined), apart: write("apart", texts) };
  const hooks = new URL("sources-hooks.mjs", import.meta.url).href;
  const imported = ["less-compiling.mjs", "attribution.mjs"].map((name) => new URL(name, import.meta.url).href);
  const loader = resolve(folder, "loader.mjs");
  // Newer versions run the hooks of tsx in the thread of the program, where they cost little.
  writeFileSync(
    loader,
    `import { readFileSync } from "node:fs";
import module from "node:module";
if (module.registerHooks !== undefined) await import(${JSON.stringify(import.meta.resolve("tsx"))});
else {
  for (const url of ${JSON.stringify(imported)}) await import(url);
  // It looks for the lines of the source in stacks.
  const [, main = ""] = process.argv;
  const apart = main.endsWith(".test.mjs") && readFileSync(main, "utf8").includes("security/patterns");
  process.setSourceMapsEnabled(apart);
  module.register(${JSON.stringify(hooks)}, { data: apart ? ${JSON.stringify(lists.apart)} : ${JSON.stringify(lists.together)} });
}
`,
  );
  return pathToFileURL(loader).href;
}
