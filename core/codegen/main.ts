/** `npm run generate`: writes `generated/` from `schemas/`. With `--check` it only compares, and fails on a difference. */
import { mkdir, readdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { generate } from "./generate.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** Returns the exit code: 0 for success, 1 when a schema is broken or, with `check`, a file is stale. */
export async function runCodegen(root: string, check: boolean, print: (line: string) => void): Promise<number> {
  const { files, problems } = await generate(root);
  for (const { file, message } of problems) print(`${file}: ${message}`);
  const folder = join(root, "generated");
  const stale = await staleFiles(folder, files);
  if (check) {
    for (const name of stale) print(`generated/${name} is stale: run npm run generate`);
    return problems.length > 0 || stale.length > 0 ? 1 : 0;
  }
  await mkdir(folder, { recursive: true });
  for (const name of stale) {
    const text = files.get(name);
    if (text === undefined) continue;
    // Renaming is atomic: readers and other runs never see a partial file.
    const draft = join(folder, `.${name}.${process.pid}`);
    await writeFile(draft, text);
    await rename(draft, join(folder, name));
    print(`generated/${name}`);
  }
  return problems.length > 0 ? 1 : 0;
}

/** Names of files that are stale, missing, or superfluous. */
async function staleFiles(folder: string, files: ReadonlyMap<string, string>): Promise<string[]> {
  const stale: string[] = [];
  for (const [name, text] of files) {
    const current = await readFile(join(folder, name), "utf8").catch(() => null);
    if (current !== text) stale.push(name);
  }
  const present = await readdir(folder).catch(() => []);
  return [...stale, ...present.filter((name) => !name.startsWith(".") && !files.has(name))];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.exitCode = await runCodegen(ROOT.replace(/[\\/]$/, ""), process.argv.includes("--check"), (line) =>
    console.log(line),
  );
}
