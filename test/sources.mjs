// Translates the TypeScript of this checkout once, for all processes of a run on Node.js 20: there tsx takes each of them half a second.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { transform } from "esbuild";

const FOLDERS = ["core", "generated", "plugins", "test", "bench"];

/** @returns the URL of a source, and the file with its JavaScript */
async function translate(source, folder) {
  const { code } = await transform(readFileSync(source, "utf8"), {
    loader: "ts",
    target: "node20",
    // Beside the source, whose URL the module has.
    sourcefile: basename(source),
    sourcemap: "inline",
    sourcesContent: false,
  });
  const file = resolve(folder, `${source}.js`);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, code);
  return [pathToFileURL(resolve(source)).href, file];
}

/** Translates into an empty folder. @returns the module for `node --import`, in the place of tsx */
export async function translateSources(folder) {
  const paths = FOLDERS.flatMap((name) => readdirSync(name, { recursive: true }).map((path) => join(name, path)));
  const sources = paths.filter((path) => path.endsWith(".ts") && !path.endsWith(".d.ts"));
  const list = resolve(folder, "list.json");
  writeFileSync(list, JSON.stringify(await Promise.all(sources.map((source) => translate(source, folder)))));
  const hooks = new URL("sources-hooks.mjs", import.meta.url).href;
  const loader = resolve(folder, "loader.mjs");
  // Newer versions run the hooks of tsx in the thread of the program, where they cost little.
  writeFileSync(
    loader,
    `import module from "node:module";
if (module.registerHooks !== undefined) await import(${JSON.stringify(import.meta.resolve("tsx"))});
else {
  process.setSourceMapsEnabled(true);
  module.register(${JSON.stringify(hooks)}, { data: ${JSON.stringify(list)} });
}
`,
  );
  return pathToFileURL(loader).href;
}
