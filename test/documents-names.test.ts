/** What the documents name is there: scripts, links, headings, files, limits. */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { ROOT } from "./support/command-line.ts";
import { DOCUMENTS, EVERYTHING, README } from "./support/documents.ts";

test("docs/limits.md: every limit of server.limits has a row", () => {
  const { LimitsManifest } = JSON.parse(readFileSync(join(ROOT, "schemas/manifest/server.json"), "utf8")).$defs;
  const rows = DOCUMENTS.get("docs/limits.md")!;
  for (const name of Object.keys(LimitsManifest.properties))
    assert.ok(rows.includes(`| \`server.limits.${name}\` `), `server.limits.${name}`);
});

test("every document: npm scripts, links to files and to headings, and paths of the source exist", () => {
  const scriptsOf = (path: string) => JSON.parse(readFileSync(join(ROOT, path), "utf8")).scripts;
  // Those of the checkout, and of a project that `init` makes.
  const scripts = { ...scriptsOf("package.json"), ...scriptsOf("core/init/templates/common/package.json.template") };
  const named = new Set([...EVERYTHING.matchAll(/npm run ([\w:]+)/g)].map(([, name]) => name!));
  assert.ok(named.size >= 6, [...named].join(", "));
  const beside = [
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "core/README.md",
    "test/README.md",
    "bench/README.md",
  ];
  const all = [...DOCUMENTS, ...beside.map((path) => [path, readFileSync(join(ROOT, path), "utf8")] as const)];
  for (const [path, text] of all) {
    for (const [, name] of text.matchAll(/npm run ([\w:]+)/g)) assert.ok(name! in scripts, `${path}: npm run ${name}`);
    for (const [, target = "", heading] of text.matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)/g)) {
      const file = target === "" ? path : join(dirname(path), target);
      assert.ok(existsSync(join(ROOT, file)), `${path} links to ${target}`);
      if (heading !== undefined)
        assert.ok(headingsOf(readFileSync(join(ROOT, file), "utf8")).includes(heading), `${path} links to #${heading}`);
    }
    for (const [, file] of text.matchAll(/`((?:core|test|bench|schemas)\/[\w./-]+\.\w+)`/g))
      assert.ok(existsSync(join(ROOT, file!)), `${path} names ${file}`);
  }
});

/** As links name them. */
const headingsOf = (text: string) =>
  [...text.matchAll(/^#+ (.*)$/gm)].map(([, title]) =>
    title!
      .toLowerCase()
      .replace(/[^\w -]/g, "")
      .replaceAll(" ", "-"),
  );

test("docs/architecture.md and docs/decisions/: every folder and every file of the source that they name exists", () => {
  const rooms = DOCUMENTS.get("docs/architecture.md")!;
  const folders = new Set([...rooms.matchAll(/`([a-z\d/-]+)\/`/g)].map(([, name]) => name!));
  assert.ok(folders.size > 20, [...folders].join());
  for (const name of folders)
    assert.ok(
      [`core/${name}`, name].some((path) => existsSync(join(ROOT, path))),
      name,
    );
  const decisions = [...DOCUMENTS.keys()].filter((path) => path.startsWith("docs/decisions/"));
  assert.ok(decisions.length > 5);
  for (const path of ["docs/architecture.md", ...decisions])
    for (const [, file] of DOCUMENTS.get(path)!.matchAll(
      /`((?!(?:schemas|test|generated|bench)\/)[\w-]+\/[\w/-]+\.ts)`/g,
    ))
      assert.ok(existsSync(join(ROOT, "core", file!)), `${path} names ${file}`);
  const walked = [...rooms.matchAll(/^\d\. `([^`]+)`: (.*)$/gm)];
  assert.ok(walked.length > 20);
  for (const [, room, line] of walked)
    for (const [, file] of line!.matchAll(/`([\w-]+\.ts)`/g))
      assert.ok(existsSync(join(ROOT, "core", room!, file!)), `${room}${file}`);
  const layers = /```text\n(.*?)```/s.exec(rooms)![1]!;
  for (const name of readdirSync(join(ROOT, "core"), { withFileTypes: true }))
    if (name.isDirectory())
      assert.ok(layers.includes(` ${name.name}/`) && rooms.includes(`\`${name.name}/\``), name.name);
});

test("test/README.md names every file of test/support and every folder of test/, and no other", () => {
  const text = readFileSync(join(ROOT, "test/README.md"), "utf8");
  const rows = [...text.matchAll(/^\| `?([^`|]+?)`? +\|/gm)].map(([, name]) => name!);
  const entries = readdirSync(join(ROOT, "test"), { withFileTypes: true });
  const folders = entries.filter((entry) => entry.isDirectory()).map(({ name }) => `${name}/`);
  const wanted = [...folders, ...readdirSync(join(ROOT, "test/support"))];
  assert.deepEqual(rows.filter((name) => name.includes(".") || name.endsWith("/")).sort(), wanted.sort());
});

test("core/README.md explains at most thirty words", () => {
  const words = readFileSync(join(ROOT, "core/README.md"), "utf8").match(/^\| (?!-|Word )/gm)!;
  assert.ok(words.length > 20 && words.length <= 30, String(words.length));
});

test("README is at most 200 lines long and names every document of docs/, and each of these the chapters in its folder", () => {
  assert.ok(README.split("\n").length <= 200);
  for (const path of DOCUMENTS.keys()) {
    if (path === "README.md") continue;
    const folder = dirname(path);
    const [parent, link] = folder === "docs" ? ["README.md", path] : [`${folder}.md`, path.slice("docs/".length)];
    assert.ok(DOCUMENTS.get(parent)?.includes(`](${link}`), `${parent} names ${path}`);
  }
});

test("no chapter of docs/ takes longer than five minutes to read: it has at most 1,600 words", () => {
  // A reference is not read from begin to end.
  for (const [path, text] of DOCUMENTS) {
    if (path.startsWith("docs/reference/")) continue;
    const words = text.replace(/^```.*?^```/gms, "").split(/\s+/).length;
    assert.ok(words <= 1_600, `${path} has ${words} words`);
  }
});

test("docs/troubleshooting.md: every message that it explains is one that the source has", () => {
  const source = readdirSync(join(ROOT, "core"), { encoding: "utf8", recursive: true })
    .filter((path) => /\.(ts|js|mjs)$/.test(path))
    .map((path) => readFileSync(join(ROOT, "core", path), "utf8"))
    .join("\n");
  const cells = [...DOCUMENTS.get("docs/troubleshooting.md")!.matchAll(/^\| (?!Message|Status|-)(.*?) \| /gm)];
  assert.ok(cells.length > 20);
  for (const [, cell] of cells)
    for (const [, message] of cell!.matchAll(/`([^`]+)`/g))
      for (const part of message!.split("...").map((each) => each.trim()))
        assert.ok(source.includes(part), `no message of the source has: ${part}`);
});
