/** The command line, as a process: reports for programs, files of variables, completion, and new projects. */
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { CHECKOUT, PENSTOCK, penstock, ROOT, run, serve } from "./support/command-line.ts";
import { pluginFolder } from "./support/plugin-folder.ts";

const QUIET = "name: Quiet\n";

test("penstock check --json: the report as JSON with place, path and message; the exit codes stay", async (t) => {
  const cwd = pluginFolder(t, { "service.yaml": "server: { prot: 1 }\n", "sound.yaml": QUIET });
  const wrong = await penstock(["check", "--json"], { cwd });
  assert.deepEqual([wrong.code, wrong.stderr], [1, ""]);
  const issue = { severity: "error", file: "service.yaml", line: 1, column: 11, path: "server.prot" };
  const message = 'unknown key, did you mean "port"?';
  assert.deepEqual(JSON.parse(wrong.stdout), { valid: false, issues: [{ ...issue, message }] });
  const sound = await penstock(["check", "--json", "-c", "sound.yaml"], { cwd });
  assert.deepEqual([sound.code, JSON.parse(sound.stdout)], [0, { valid: true, issues: [] }]);
});

test("penstock --env-file: variables for the manifest, those that are set stay; a file that is not there exits 1", async (t) => {
  const cwd = pluginFolder(t, {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the manifest's own syntax
    "service.yaml": 'name: "${SERVICE_NAME}"\nversion: "${SERVICE_VERSION}"\n',
    "own.env": "# a comment\nSERVICE_NAME='From a file'\nSERVICE_VERSION=2\n",
  });
  const unset = await penstock(["check"], { cwd });
  assert.equal(unset.code, 1);
  const env = { SERVICE_VERSION: "3" };
  const set = await penstock(["explain", "version", "--env-file", "own.env"], { cwd, env });
  assert.deepEqual([set.code, set.stderr], [0, ""]);
  const service = await serve(t, [process.execPath, PENSTOCK, "serve", "-p", "0", "--env-file", "own.env"], {
    cwd,
    env,
  });
  assert.match(service.stdout(), /"From a file listens on /m);
  const document = (await (await fetch(`${service.url}/doc`)).json()) as { info: { version: string } };
  assert.equal(document.info.version, "3");
  const missing = await penstock(["check", "--env-file", "none.env"], { cwd });
  // Node 20 takes this option for its own, wherever it stands, and then says so itself.
  assert.ok(missing.code === 1 || missing.code === 9, String(missing.code));
  assert.match(missing.stderr, /none\.env: (there is no such file|not found)/);
});

test("penstock routes: the access classes stand in one column, however long a path is", async (t) => {
  const cwd = pluginFolder(t, { "service.yaml": QUIET });
  const { code, stdout } = await penstock(["routes"], { cwd });
  assert.equal(code, 0);
  const columns = stdout
    .trimEnd()
    .split("\n")
    .map((line) => /^\S+ +\S+ +/.exec(line)![0].length);
  assert.ok(columns.length > 50);
  assert.equal(new Set(columns).size, 1);
});

test("penstock help says what --help says, and penstock completion writes scripts that the shells accept", async () => {
  const [help, option] = await Promise.all([penstock(["help"]), penstock(["--help"])]);
  assert.deepEqual(help, option);
  const { code, stdout } = await penstock(["completion", "bash"]);
  assert.equal(code, 0);
  const ask = (words: string) =>
    run("bash", [
      "-c",
      `${stdout}\nCOMP_WORDS=(${words}); COMP_CWORD=$((\${#COMP_WORDS[@]}-1)); _penstock; echo "\${COMPREPLY[@]}"`,
    ]);
  assert.deepEqual(await ask("penstock exec"), { code: 0, stdout: "executions\n", stderr: "" });
  assert.deepEqual(await ask("penstock serve --env"), { code: 0, stdout: "--env-file\n", stderr: "" });
  for (const shell of ["zsh", "fish"]) assert.match((await penstock(["completion", shell])).stdout, /executions/);
  const unknown = await penstock(["completion", "cmd"]);
  assert.equal(unknown.code, 2);
  assert.match(unknown.stderr, /completion needs one of bash, zsh, fish/);
});

test("penstock init: a file that is there is never overwritten, but named, and nothing is written then", async (t) => {
  const cwd = pluginFolder(t, { "mine/service.yaml": "name: Mine\n", "mine/test/serve.ts": "" });
  const { code, stdout, stderr } = await penstock(["init", "mine"], { cwd });
  assert.deepEqual([code, stdout], [1, ""]);
  assert.equal(stderr, "penstock: service.yaml, test/serve.ts are there already: init overwrites nothing\n");
  assert.deepEqual((await readdir(join(cwd, "mine"))).sort(), ["service.yaml", "test"]);
  assert.equal(await readFile(join(cwd, "mine/service.yaml"), "utf8"), "name: Mine\n");
});

test("penstock init without a folder, in a repository: .gitignore and package.json get what they lack, and all else stays", async (t) => {
  const own = { name: "shop", scripts: { start: "node shop.js" }, dependencies: { tsx: "4.0.0" } };
  const cwd = pluginFolder(t, {
    ".gitignore": "node_modules/\n*.log",
    "package.json": JSON.stringify(own, null, "\t"),
    "README.md": "# Shop\n",
    "tsconfig.json": "{}",
  });
  const { code, stdout, stderr } = await run(process.execPath, [CHECKOUT, "init"], { cwd });
  assert.deepEqual([code, stderr], [0, ""]);
  for (const line of [".gitignore (added to)", "package.json (added to)", "README.md (left as it is)", "service.yaml"])
    assert.ok(stdout.includes(`  ${line}\n`), line);
  assert.match(stdout, /\nNext: npm install && npx penstock-gateway\n$/);
  const read = (name: string) => readFile(join(cwd, name), "utf8");
  assert.equal(await read(".gitignore"), "node_modules/\n*.log\ndata/\n.env\n");
  assert.deepEqual([await read("README.md"), await read("tsconfig.json")], ["# Shop\n", "{}"]);
  const text = await read("package.json");
  assert.match(text, /^\{\n\t"name": "shop",\n/);
  const made = JSON.parse(text);
  assert.deepEqual([made.type, made.scripts.start, made.dependencies.tsx], [undefined, "node shop.js", "4.0.0"]);
  assert.deepEqual(
    [made.scripts.check, made.imports["#plugin"]],
    ["penstock-gateway check", "penstock-gateway/plugin"],
  );
  // From a checkout npm installs the checkout.
  assert.equal(made.dependencies["penstock-gateway"], `file:${ROOT.replace(/\/$/, "")}`);
});

test("penstock init: a package.json that is no JSON is named, and nothing is written", async (t) => {
  const cwd = pluginFolder(t, { "package.json": "{ name: shop }" });
  const { code, stderr } = await penstock(["init"], { cwd });
  assert.equal(code, 1);
  assert.match(stderr, /^penstock: package\.json: .*JSON/);
  assert.deepEqual(await readdir(cwd), ["package.json"]);
});
