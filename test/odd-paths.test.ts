/** The command line given paths that lead nowhere, in a circle, or to a file where a folder is wanted and the other way round. */
import assert from "node:assert/strict";
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT, run, TYPESCRIPT } from "./support/command-line.ts";
import { pluginFolder } from "./support/plugin-folder.ts";

/** Each call in one process, one after the other: what was said and the exit code, as JSON. */
const SCRIPT = `
  const { main } = await import("./core/command/main.ts");
  const [folder, calls] = process.argv.slice(1);
  process.chdir(folder);
  const print = process.stdout.write.bind(process.stdout);
  const exit = process.exit.bind(process);
  // Evals end the process a while after their report, whatever plugins have left behind.
  process.exit = () => {};
  let said = "";
  process.stdout.write = process.stderr.write = (text) => Boolean((said += text));
  const ends = [];
  for (const call of JSON.parse(calls)) {
    said = "";
    await main(call);
    ends.push({ code: process.exitCode, said });
  }
  print(JSON.stringify(ends), () => exit(0));
`;

async function inOneProcess(folder: string, calls: readonly string[][]): Promise<{ code: number; said: string }[]> {
  const args = [...TYPESCRIPT, "--input-type=module", "-e", SCRIPT, folder, JSON.stringify(calls)];
  const { stdout, stderr } = await run(process.execPath, args, { cwd: ROOT });
  assert.notEqual(stdout, "", stderr);
  return JSON.parse(stdout);
}

const MANIFEST = `name: Odd
version: 1.0.0
providers: { demo: { use: scripted, replies: [{ text: hi }] } }
agents: { a: { instructions: Help., model: demo/echo } }
store: sqlite:store.db
`;

const FILE = /a folder is expected where there is a file|it is not a folder/;
const FOLDER =
  /a file is expected, and this is a folder|exists already: name a file|this is a folder: name the \w+ in it/;
const NOTHING = /there is no such file/;
const CIRCLE = /links lead in a circle|exists already: name a file/;

/** What is wrong with these paths for every command. */
const ALWAYS: Readonly<Record<string, RegExp>> = {
  loop: CIRCLE,
  "loop/x": CIRCLE,
  "file/x": FILE,
  [`${"a".repeat(300)}/x`]: /the name is too long/,
};

/** The words before the path, and which other paths are wrong for them. */
const COMMANDS: readonly [before: string[], others: Record<string, RegExp>][] = [
  [["check", "--config"], { folder: FOLDER, "none/x": NOTHING }],
  [["check", "--plugins"], { file: FILE }],
  [["check", "--env-file"], { folder: FOLDER, "none/x": NOTHING }],
  [["eval"], { folder: FOLDER, "none/x": NOTHING }],
  [["eval", "evals.yaml", "--junit"], { folder: FOLDER, "none/x": NOTHING }],
  [["eval", "evals.yaml", "--record"], { file: FILE }],
  [["eval", "evals.yaml", "--replay"], { file: FILE, "none/x": NOTHING }],
  [["backup"], { folder: FOLDER, dangling: FOLDER, "none/x": NOTHING }],
  [["restore"], { dangling: NOTHING, "none/x": NOTHING }],
  [["export"], { folder: FOLDER, dangling: FOLDER, "none/x": NOTHING }],
  [["import"], { folder: FOLDER, "none/x": NOTHING }],
  [["init"], { file: FILE }],
  [["init", "new", "--from", "openapi"], { folder: FOLDER, "none/x": NOTHING }],
  [["client", "--out"], { folder: FOLDER }],
  [["build"], { file: FILE, dangling: NOTHING }],
];

const ODD = COMMANDS.flatMap(([before, others]) =>
  Object.entries({ ...ALWAYS, ...others }).map(([path, words]) => ({ call: [...before, path], path, words })),
);

/** Manifests whose store cannot be where they say. */
const STORES = Object.entries({ "file/x": FILE, loop: CIRCLE }).map(([path, words]) => ({
  call: ["export", "out.jsonl", "--config", `${path.replace("/", "-")}.yaml`],
  path,
  words,
}));

const CALLS = [...ODD, ...STORES];

test("every command that is given a path which cannot be used says in one line which it is and what was expected", async (t) => {
  const folder = pluginFolder(t, {
    "service.yaml": MANIFEST,
    "evals.yaml": "cases: [{ name: one, agent: a, input: hi, expect: { contains: hi } }]\n",
    file: "text\n",
    "folder/within": "",
  });
  for (const { path, call } of STORES) writeFileSync(join(folder, call.at(-1)!), MANIFEST.replace("store.db", path));
  symlinkSync("loop", join(folder, "loop"));
  symlinkSync("nowhere", join(folder, "dangling"));
  const ends = await inOneProcess(folder, [["export", "first.jsonl"], ...CALLS.map(({ call }) => call)]);
  assert.equal(ends.shift()!.code, 0, "a store that can be copied");
  const wrong = CALLS.filter(({ path, words }, index) => {
    const { code, said } = ends[index]!;
    const isPlain = words.test(said) && said.includes(path) && !/\bE[A-Z]{3,}\b|\n.*\n/.test(said);
    return !isPlain || (code !== 1 && code !== 2);
  });
  assert.deepEqual(
    wrong.map(({ call }) => [call.join(" "), ends[CALLS.findIndex((each) => each.call === call)]]),
    [],
  );
  assert.deepEqual(
    readdirSync(folder).filter((name) => name === "nowhere"),
    [],
  );
});

/** What stands in a folder that is made a project, and what `init` says of it. */
const HELD: Readonly<Record<string, [make: (path: string) => void, words: RegExp]>> = {
  "package.json": [(path) => mkdirSync(path), /^penstock: package\.json is there already: init overwrites nothing$/],
  ".gitignore": [(path) => mkdirSync(path), /^penstock: \.gitignore is there already: init overwrites nothing$/],
  "service.yaml": [(path) => symlinkSync("nowhere", path), /^penstock: service\.yaml is there already: init/],
  "README.md": [(path) => symlinkSync("nowhere", path), /^penstock: README\.md is there already: init/],
  Dockerfile: [(path) => symlinkSync("Dockerfile", path), /^penstock: \S+\/Dockerfile: its links lead in a circle$/],
  plugins: [
    (path) => writeFileSync(path, ""),
    /^penstock: \S+\/plugins\S*: a folder is expected where there is a file$/,
  ],
};

test("penstock init in a folder with something in the way says what it is, and writes nothing", async (t) => {
  const folder = pluginFolder(t, {});
  const names = Object.keys(HELD);
  for (const name of names) {
    mkdirSync(join(folder, `with-${name}`));
    HELD[name]![0](join(folder, `with-${name}`, name));
  }
  const ends = await inOneProcess(
    folder,
    names.map((name) => ["init", `with-${name}`]),
  );
  for (const [index, name] of names.entries()) {
    assert.equal(ends[index]!.code, 1);
    assert.match(ends[index]!.said.trimEnd(), HELD[name]![1]);
    const files = readdirSync(join(folder, `with-${name}`), { recursive: true, withFileTypes: true });
    assert.deepEqual(
      files.filter((each) => !each.isDirectory()).map((each) => each.name),
      name === "package.json" || name === ".gitignore" ? [] : [name],
    );
  }
});
