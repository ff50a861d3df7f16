// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the manifest's own syntax
/** `penstock build`: what goes into the folder, what stays behind, and that it runs with nothing but node. */
import assert from "node:assert/strict";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { PENSTOCK, ROOT, run, serve } from "./support/command-line.ts";

const MANIFEST = `
name: Built
version: 1.0.0
store: sqlite:data/built.db
plugins: [./plugins]
providers:
  demo: { use: scripted }
  cloud: { use: "@ai-sdk/openai", options: { apiKey: "\${CLOUD_KEY}" } }
tools:
  greet: { use: greet }
  stock:
    description: Asks the warehouse
    http: { method: GET, url: "http://127.0.0.1:9/", headers: { authorization: "\${file:secrets/warehouse}" } }
agents:
  echo: { name: Echo, description: Repeats, instructions: Repeat., model: [demo/echo, cloud/gpt-4o] }
`;
const SMALL = "name: Small\nversion: 1.0.0\nplugins: [./plugins]\ntools: { greet: { use: greet } }\n";
const TOOL = (imports: string, result: string) =>
  `${imports}\nexport default { kind: "tool", description: "Greets", parameters: { type: "object" }, execute: () => ${result} };\n`;
const GREET = TOOL(
  'import { defineTool } from "#plugin";\nimport { greeting } from "./helpers/greeting.ts";\nimport words from "words";\nvoid defineTool;',
  "({ text: `${greeting()}, ${words}` })",
);
const packageOf = (name: string, version: string, more: object = {}) =>
  JSON.stringify({ name, version, type: "module", exports: { ".": "./index.js" }, ...more });

/** A folder with these files; a text that is empty is a folder. */
function folderOf(t: TestContext, files: Record<string, string>): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "penstock-built-")));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), text);
  }
  return folder;
}

const build = (cwd: string, ...args: string[]) =>
  run(process.execPath, [PENSTOCK, "build", ...args], {
    cwd,
    env: { PATH: process.env.PATH!, CLOUD_KEY: "a-key-of-the-cloud" },
    hang: 300_000,
  });

const KEPT = [
  "README.md",
  "plugins/tools/greet.ts",
  "plugins/tools/helpers/greeting.ts",
  "prompts/long.md",
  "service.yaml",
  "test/service.test.mjs",
];

test("penstock build: packages that manifest and plugins import go in with what they need, secrets, stores, exports and builds do not, and it runs with nothing but node", async (t) => {
  const folder = folderOf(t, {
    "service.yaml": MANIFEST,
    "README.md": "# Built",
    "prompts/long.md": "Be kind.",
    "prompts/draft.tmp": "not yet",
    "notes/today.md": "a note",
    ".penstockignore": "# what nobody needs\n/notes/\n*.tmp\n",
    "test/service.test.mjs": 'import "unused";',
    ".env": "CLOUD_KEY=x",
    ".git/config": "x",
    "production.env": "CLOUD_KEY=x",
    "env.production": "CLOUD_KEY=x",
    "account.json": JSON.stringify({ private_key: "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n" }),
    "shop.db-reserve": "x",
    "secrets/warehouse": "-----BEGIN PRIVATE KEY-----\nx",
    "secrets/both.pem": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n-----BEGIN EC PRIVATE KEY-----\nx",
    "Production.ENV": "KEY=x",
    "shop.of-mine": "SQLite format 3\0x",
    "data/built.db": "SQLite format 3\0x",
    "data/built.db-wal": "x",
    "rows.txt": '{"penstock":"export","format":1}\n',
    "earlier/service.yaml": MANIFEST,
    "earlier/dist/sbom.cdx.json": "{}",
    "plugins/tools/greet.ts": GREET,
    "plugins/tools/helpers/greeting.ts":
      'import hello from "hello/deep.js";\nexport const greeting = (): string => hello();',
    "node_modules/words/package.json": packageOf("words", "1.0.0"),
    "node_modules/words/index.js": 'export default "words 1";',
    "node_modules/unused/package.json": packageOf("unused", "1.0.0"),
    "node_modules/hello/package.json": packageOf("hello", "3.0.0", {
      exports: { "./deep.js": "./deep.js" },
      dependencies: { words: "2" },
      peerDependencies: { hello: "3", nothing: "*" },
    }),
    "node_modules/hello/deep.js":
      'import { readFileSync } from "node:fs";\nimport words from "words";\nexport default () => readFileSync(new URL("greeting.bin", import.meta.url), "utf8") + words;',
    "node_modules/hello/greeting.bin": "Hello, ",
    "node_modules/hello/node_modules/words/package.json": packageOf("words", "2.0.0", { dependencies: { hello: "3" } }),
    "node_modules/hello/node_modules/words/index.js": 'export default "words 2";',
  });
  mkdirSync(join(folder, "node_modules/@ai-sdk"));
  symlinkSync(join(ROOT, "node_modules/@ai-sdk/openai"), join(folder, "node_modules/@ai-sdk/openai"));
  const { code, stdout, stderr } = await build(folder, "built");
  assert.deepEqual([code, stderr], [0, ""]);
  const lines = stdout.split("\n").filter((line) => line.startsWith("  "));
  const files = lines.map((line) => line.trim()).filter((line) => !line.includes("@"));
  assert.deepEqual(files.sort(), KEPT);
  const packages = lines.map((line) => line.trim()).filter((line) => line.includes("@"));
  for (const each of ["hello@3.0.0", "words@1.0.0", "words@2.0.0"]) assert.ok(packages.includes(each), stdout);
  assert.ok(!packages.some((name) => /^(unused|penstock-gateway)@/.test(name)), stdout);
  for (const each of ["@ai-sdk/openai", "@ai-sdk/provider", "@ai-sdk/provider-utils"])
    assert.ok(
      packages.some((name) => name.startsWith(`${each}@`)),
      stdout,
    );
  assert.match(stdout, /^built is whole, on /m);

  const built = join(folder, "built");
  const there = readdirSync(built, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(built.length + 1))
    .filter((file) => !/^(dist|node_modules)\//.test(file));
  assert.deepEqual(there.sort(), KEPT);

  const elsewhere = folderOf(t, { "secrets/warehouse": "a-secret-of-the-warehouse" });
  cpSync(built, elsewhere, { recursive: true });
  rmSync(folder, { recursive: true });
  const nowhere = "http://127.0.0.1:9";
  const service = await serve(t, [process.execPath, "dist/penstock.js", "serve", "--port", "0"], {
    cwd: elsewhere,
    env: {
      PATH: "/nowhere",
      CLOUD_KEY: "a-key-of-the-cloud",
      HTTPS_PROXY: nowhere,
      HTTP_PROXY: nowhere,
      NO_PROXY: "127.0.0.1",
    },
  });
  const headers = { "content-type": "application/json" };
  const reply = await fetch(`${service.url}/tools/greet/execute`, { method: "POST", headers, body: '{"input":{}}' });
  const { data } = (await reply.json()) as { data: { result: unknown } };
  assert.deepEqual(data.result, { text: "Hello, words 2, words 1" });
});

test("penstock build: what would not run elsewhere is not made, and says what is missing", async (t) => {
  const folder = folderOf(t, {
    "service/service.yaml": SMALL,
    "service/plugins/tools/greet.ts": TOOL('import { text } from "../../../shared.ts";', "text"),
    "shared.ts": 'export const text = "beside";',
  });
  const { code, stdout, stderr } = await build(join(folder, "service"), "built");
  assert.equal(code, 1, stdout);
  assert.match(
    stderr,
    /^penstock: built is not made, because it would not run elsewhere:\n.*greet\.ts:1:1.*cannot find .*shared\.ts/m,
  );
  assert.ok(!existsSync(join(folder, "service/built")));
});
