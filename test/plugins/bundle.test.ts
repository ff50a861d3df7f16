/** The loader inside a bundle, run by plain Node: TypeScript plugins must load there too, and share core's classes. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build } from "esbuild";
import { pluginFolder } from "../support/plugin-folder.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const PLUGIN = `import { defineTool, ServiceError } from "#plugin";
export default defineTool({ execute: (n: number): number => { if (n < 0) throw new ServiceError("conflict", "no"); return n; } });`;

/** Below node_modules, so that the bundle finds its packages. */
async function bundle(t: TestContext, program: string): Promise<string> {
  const cache = join(ROOT, "node_modules/.cache");
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, "penstock-bundle-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const outfile = join(folder, "program.mjs");
  await build({
    stdin: { contents: program, resolveDir: ROOT, loader: "ts" },
    bundle: true,
    platform: "node",
    format: "esm",
    packages: "external",
    outfile,
  });
  return outfile;
}

test("a bundle loads .ts, .mts, .js and .mjs plugins without tsx on the command line, also those that wait at their top level, and says what is wrong with others", async (t) => {
  const sources = {
    "tools/a.ts": PLUGIN,
    "tools/b.mts": PLUGIN.replaceAll(": number", ""),
    "tools/c.mjs": PLUGIN.replaceAll(": number", ""),
  };
  const modules = pluginFolder(t, { ...sources, "package.json": '{ "type": "module" }' });
  const common = pluginFolder(t, { "tools/d.ts": PLUGIN, "tools/e.js": PLUGIN.replaceAll(": number", "") });
  const waiting = pluginFolder(t, {
    "package.json": '{ "name": "mine" }',
    "tools/f.ts": `import "./lib/ready.ts";\n${PLUGIN}\nawait Promise.resolve();`,
    "tools/g.js": `${PLUGIN.replaceAll(": number", "")}\nawait Promise.resolve();`,
    "tools/h.js": PLUGIN.replaceAll(": number", ""),
    "tools/lib/ready.ts": "export const ready: boolean = await Promise.resolve(true);",
  });
  const wrong = pluginFolder(t, { "tools/i.ts": "export default () => 1;", "tools/j.ts": "export const tool = 1;" });
  const program = await bundle(
    t,
    `import { ServiceError } from "./core/plugin/plugin.ts";
import { loadPlugins } from "./core/registry/load.ts";
const { registry, problems } = await loadPlugins(process.argv.slice(2));
const kinds = registry.names("tool").map((name) => {
  try { registry.get("tool", name).execute(-1); } catch (error) { return name + (error instanceof ServiceError ? error.kind : " foreign"); }
});
console.log(JSON.stringify({ problems: problems.map(({ cause }) => cause).sort(), names: registry.names("tool"), kinds }));`,
  );
  // The flags that started this test would bring tsx along.
  const env = { ...process.env, NODE_OPTIONS: "" };
  const { stdout } = await promisify(execFile)(process.execPath, [program, modules, common, waiting, wrong], { env });
  assert.deepEqual(JSON.parse(stdout), {
    problems: [
      'has no default export: write export default { kind: "tool", ... }',
      'the default export must be an object with kind: "tool", not a function',
    ],
    names: [..."abcdefgh"],
    kinds: [..."abcdefgh"].map((name) => `${name}conflict`),
  });
});

test("a bundle whose plugins are all JavaScript does not load tsx", async (t) => {
  const source = 'await Promise.resolve();\nexport default { kind: "tool", execute: () => 1 };';
  const folder = pluginFolder(t, { "tools/prebuilt.mjs": source, "tools/waits.js": source });
  const program = await bundle(
    t,
    `import { createRequire } from "node:module";
import { loadPlugins } from "./core/registry/load.ts";
const { registry } = await loadPlugins([process.argv[2]]);
const tsx = Object.keys(createRequire(import.meta.url).extensions).includes(".ts") && !process.features.typescript;
console.log(JSON.stringify({ names: registry.names("tool"), tsx }));`,
  );
  const { stdout } = await promisify(execFile)(process.execPath, [program, folder], {
    env: { ...process.env, NODE_OPTIONS: "" },
  });
  assert.deepEqual(JSON.parse(stdout), { names: ["prebuilt", "waits"], tsx: false });
});
