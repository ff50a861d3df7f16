/** The rules that keep the code in parts: which may import which, what must not happen at import. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

interface Import {
  from: string;
  /** A path below the root, or the name of a package. */
  to: string;
  types: boolean;
}

/**
 * The folders of core, from the lowest to the highest. Values are imported from a lower rank or from the own folder, so that there are
 * no circles between folders, inside the large ones either.
 */
const RANKS: readonly (readonly string[])[] = [
  ["generated", "core/lib"],
  ["core/outbound"],
  [
    "core/identity",
    "core/manifest",
    "core/observability",
    "core/observability/metrics",
    "core/observability/otlp",
    "core/client-schema",
    "core/platform",
  ],
  ["core/http", "core/plugin"],
  ["core/registry", "core/transport", "core/api/pages"],
  [
    "core/storage",
    "core/tools",
    "core/auth",
    "core/memory/embedding",
    "core/models/cassettes",
    "core/models/fetch",
    "core/models/files",
    "core/models/openai-compatible",
    "core/models/scripted",
  ],
  ["core/models/versions", "core/approvals"],
  ["core/models", "core/traces"],
  ["core/memory/records", "core/agents/prompt"],
  ["core/memory/semantic", "core/memory/working-memory"],
  ["core/memory/messages"],
  ["core/memory/conversations"],
  ["core/memory"],
  ["core/agents/run", "core/agents/history"],
  ["core/agents/conversation", "core/agents/stream"],
  ["core/agents"],
  ["core/workflows/definition", "core/workflows/journal"],
  ["core/workflows/run", "core/workflows/list", "core/workflows/steps"],
  ["core/workflows/cluster", "core/workflows/compile"],
  ["core/workflows"],
  ["core/runs"],
  ["core/a2a", "core/ag-ui", "core/mcp", "core/openai", "core/codegen", "core/init", "core/typed-client"],
  ["core/upkeep"],
  ["core/api/routes"],
  ["core/api/custom", "core/api/sockets", "core/eval", "core/packing"],
  ["core/app/stages"],
  ["core/app"],
  ["core/command"],
];

/** Files of types that name what stands above them: what a plugin may be given, and what a handler is given. */
const PORTS = ["core/plugin/plugin.ts", "core/app/service.ts"];

function sources(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => /\.m?ts$/.test(file))
    .map((file) => join(folder, file))
    .sort();
}

const read = (file: string) => readFileSync(join(ROOT, file), "utf8");

const STATEMENT = /^(?:import|export)\s+(type\s)?([^;"']*?from\s+)?["']([^"']+)["']/gm;
const DYNAMIC = /(typeof )?\bimport\(\s*["']([^"']+)["']/g;

function importsOf(file: string): Import[] {
  const text = read(file);
  const target = (specifier: string) =>
    specifier.startsWith(".") ? relative(ROOT, resolve(ROOT, dirname(file), specifier)) : specifier;
  const statements = [...text.matchAll(STATEMENT)].map(([, type, names, specifier]) => ({
    from: file,
    to: target(specifier!),
    types: type !== undefined || onlyTypes(names ?? ""),
  }));
  const dynamic = [...text.matchAll(DYNAMIC)].map(([, type, specifier]) => ({
    from: file,
    to: target(specifier!),
    types: type !== undefined,
  }));
  return [...statements, ...dynamic];
}

/** `{ type A, type B } from`. */
function onlyTypes(names: string): boolean {
  const inside = /^\{([^}]*)\}\s+from\s+$/.exec(names)?.[1];
  return inside?.split(",").every((name) => name.trim() === "" || name.trim().startsWith("type ")) ?? false;
}

/** `core/agents/run/loop.ts` -> `core/agents/run`. */
const folderOf = (file: string) => (file.startsWith("core/") ? dirname(file) : file.split("/")[0]!);
/** `core/agents/run` -> `core/agents`. */
const roomOf = (folder: string) => folder.split("/").slice(0, 2).join("/");
const rankOf = (folder: string) => RANKS.findIndex((folders) => folders.includes(folder));

const CORE = sources("core");
const PLUGINS = sources("plugins");

/** What keys of rows begin with, in the source: `"ap/"`, or `ap/` before what is filled in. */
const SPACE = /["`]([a-z][a-z0-9]{0,2}\/)(?=["`]|\$\{|[a-z]\/)/g;
/** They name rows of others: to give them room, and to tell counters. */
const NAMES_OF_OTHERS = new Set(["core/storage/memory-shares.ts", "core/storage/row-lines.ts"]);
/** Counters of all, each by what it counts; and ids. */
const SHARED = new Set(["n/", "run/", "sub/"]);

test("what keys of rows begin with stands in one file of core, which is the only one that writes such rows", () => {
  const files = new Map<string, Set<string>>();
  for (const file of CORE.filter((each) => !NAMES_OF_OTHERS.has(each)))
    for (const [, space] of read(file).matchAll(SPACE))
      if (!SHARED.has(space!)) files.set(space!, (files.get(space!) ?? new Set()).add(file));
  assert.ok(files.size > 50, `${files.size} spaces were found`);
  assert.deepEqual(
    [...files].filter(([, those]) => those.size > 1).map(([space, those]) => [space, ...those]),
    [],
  );
});

test("every folder of core has a rank", () => {
  const folders = new Set(CORE.map(folderOf));
  assert.deepEqual(
    [...folders].filter((folder) => rankOf(folder) === -1),
    [],
  );
  const gone = RANKS.flat().filter((folder) => folder !== "generated" && !folders.has(folder));
  assert.deepEqual(gone, [], "no longer a folder: take it off the list");
});

test("imports of core point one way, between folders and inside the large ones", () => {
  const wrong = CORE.flatMap(importsOf)
    .filter(({ from, to, types }) => !types && /^(core|generated)\//.test(to) && folderOf(from) !== folderOf(to))
    .filter(({ from, to }) => rankOf(folderOf(to)) >= rankOf(folderOf(from)))
    .map(({ from, to }) => `${from} imports ${to}`);
  assert.deepEqual(wrong, []);
});

test("types point the same way between the rooms of core, but for what plugins and handlers are given", () => {
  const wrong = CORE.flatMap(importsOf)
    .filter(({ to, types }) => types && /^(core|generated)\//.test(to))
    .map(({ from, to }) => ({ from, to, below: folderOf(from), above: folderOf(to) }))
    .filter(({ below, above }) => roomOf(below) !== roomOf(above) && rankOf(above) > rankOf(below))
    .filter(({ from, to }) => !PORTS.includes(from) && !PORTS.includes(to))
    .map(({ from, to }) => `${from} imports types of ${to}`);
  assert.deepEqual(wrong, []);
});

test("files of core do not import one another in a circle, of values or of types", () => {
  const imported = new Map<string, string[]>();
  for (const { from, to } of CORE.flatMap(importsOf))
    if (to.startsWith("core/")) imported.set(from, [...(imported.get(from) ?? []), to]);
  const done = new Set<string>();
  const circles: string[] = [];
  const visit = (file: string, path: readonly string[]): void => {
    const at = path.indexOf(file);
    if (at !== -1) circles.push([...path.slice(at), file].join(" > "));
    if (at !== -1 || done.has(file)) return;
    for (const next of imported.get(file) ?? []) visit(next, [...path, file]);
    done.add(file);
  };
  for (const file of imported.keys()) visit(file, []);
  assert.deepEqual(circles, []);
});

test("core does not import plugins or tests, and nothing but relative paths within itself", () => {
  const wrong = CORE.flatMap(importsOf).filter(({ to }) => /^(plugins|test|bench)\/|^#/.test(to));
  assert.deepEqual(wrong, []);
});

test("plugins import #plugin, npm packages, Node and their own files only", () => {
  const wrong = PLUGINS.flatMap(importsOf)
    .filter(
      ({ to }) =>
        !to.startsWith("plugins/") &&
        (to.startsWith("..") || /^(core|generated|test|bench)\//.test(to) || (to.startsWith("#") && to !== "#plugin")),
    )
    .map(({ from, to }) => `${from} imports ${to}`);
  assert.deepEqual(wrong, []);
});

test("a plugin imports no other kind of plugin", () => {
  const wrong = PLUGINS.flatMap(importsOf)
    .filter(({ from, to }) => to.startsWith("plugins/") && to.split("/")[1] !== from.split("/")[1])
    .map(({ from, to }) => `${from} imports ${to}`);
  assert.deepEqual(wrong, []);
});

test("one file knows uWebSockets.js", () => {
  const files = CORE.flatMap(importsOf)
    .filter(({ to }) => to === "uWebSockets.js")
    .map(({ from }) => from);
  assert.deepEqual(
    [...new Set(files)].filter((file) => file !== "core/transport/uws.ts"),
    [],
  );
});

test("modules hold no state: no let or var at the top level of a file", () => {
  const wrong = [...CORE, ...PLUGINS].filter((file) => /^(?:export )?(?:let|var)\s/m.test(read(file)));
  assert.deepEqual(wrong, []);
});

test("the console's modules import one another alone, hold no state, and make no markup of text", () => {
  const folder = "core/api/pages/console";
  const modules = readdirSync(join(ROOT, folder)).filter((file) => file.endsWith(".js"));
  assert.ok(modules.length > 20);
  for (const module of modules) {
    const file = join(folder, module);
    for (const { to } of importsOf(file))
      assert.ok(
        modules.some((other) => to === join(folder, other)),
        `${file}: ${to}`,
      );
    const text = read(file);
    assert.doesNotMatch(text, /^(?:export )?(?:let|var)\s/m, file);
    assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function/, file);
  }
});

test("there are no barrels: only core/plugin/plugin.ts re-exports values of other files", () => {
  const wrong = CORE.filter(
    (file) => file !== "core/plugin/plugin.ts" && /^export\s+(?!type\b)(?:\*|\{[^}]*\})\s*from/m.test(read(file)),
  );
  assert.deepEqual(wrong, []);
});

test("core says what it means with types: no any, no enum, no namespace, no require", () => {
  const wrong = CORE.filter(
    (file) =>
      file !== "core/plugin/plugin.ts" &&
      /(?::\s*|<|\bas )any\b(?!["'\w])|^(?:export )?(?:const )?enum\s|^(?:export )?namespace\s/m.test(
        stripComments(read(file)),
      ),
  );
  assert.deepEqual(wrong, []);
});

const stripComments = (text: string) => text.replace(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, "");

/** Where names may be imported: everything of the project that has imports, tests too. */
const IMPORTERS = ["core", "plugins", "test", "bench"].flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => /\.m?[jt]s$/.test(file))
    .map((file) => join(folder, file)),
);
const EXPORT =
  /^export (?:declare )?(?:abstract )?(?:async )?(?:function\*?|class|const|let|interface|type|enum) ([\w$]+)/gm;
const NAMED = /^(?:import|export)\s+(?:type\s+)?\{([^}]*)\}\s+from\s+["']([^"']+)["']/gm;
const WHOLE = /^import\s+(?:type\s+)?\*\s+as\s+\w+\s+from\s+["']([^"']+)["']|\bimport\(\s*["']([^"']+)["']\s*\)/gm;

/** `core/lib/ids.ts#newId`, for every name that a file defines and exports. */
const exportsOf = (file: string): string[] => [
  ...new Set([...read(file).matchAll(EXPORT)].map(([, name]) => `${file}#${name}`)),
];

/** The names, written the same way, that a file imports or hands on. Of what it imports whole, all that it mentions. */
function namesUsedBy(file: string): string[] {
  const text = read(file);
  const target = (specifier: string) =>
    specifier === "#plugin" ? "core/plugin/plugin.ts" : relative(ROOT, resolve(ROOT, dirname(file), specifier));
  const named = [...text.matchAll(NAMED)].flatMap(([, names, from]) =>
    [...names!.matchAll(/(?:^|,)\s*(?:type\s+)?([\w$]+)/g)].map(([, name]) => `${target(from!)}#${name}`),
  );
  const whole = [...text.matchAll(WHOLE)]
    .map(([, statement, dynamic]) => target((statement ?? dynamic)!))
    .filter((path) => IMPORTERS.includes(path))
    .flatMap(exportsOf)
    .filter((each) => new RegExp(`\\b${each.slice(each.indexOf("#") + 1)}\\b`).test(text));
  return [...named, ...whole];
}

/** Names that two files of core export, each with the reason why one name is right for both. */
const DEFINED_TWICE: Record<string, string> = {
  compileExpression: "a regular expression of a client's schema, and a CEL expression of a manifest",
  Json: "an object of a manifest, and any value that a working memory may hold",
  Validator: "one is a line of the text that core/codegen/generate.ts writes",
};

test("a name that core exports is defined once, so that it means one thing", () => {
  const files = new Map<string, string[]>();
  for (const each of CORE.flatMap(exportsOf)) {
    const [file, name] = each.split("#") as [string, string];
    files.set(name, [...(files.get(name) ?? []), file]);
  }
  const twice = [...files].filter(([, all]) => all.length > 1);
  assert.deepEqual(
    twice.filter(([name]) => !(name in DEFINED_TWICE)).map(([name, all]) => `${name}: ${all.join(", ")}`),
    [],
  );
  const stale = Object.keys(DEFINED_TWICE).filter((name) => !twice.some(([each]) => each === name));
  assert.deepEqual(stale, [], "no longer defined twice: take them off the list");
});

/** `FILE#NAME` that no other file imports, each with the reason why it is exported. What plugins may import is apart. */
const UNUSED_EXPORTS: Record<string, string> = {
  "core/codegen/generate.ts#Validator": "a line of the text that it writes, and no export of its own",
  "test/simulate/inside/json-schema.ts#createSchemaCompiler": "stands in for that of core",
  "test/simulate/inside/manifest.ts#loadManifest": "stands in for that of core",
  "test/simulate/inside/plugins.ts#BUILT_IN_PLUGINS": "stands in for that of core",
  "test/simulate/inside/service.ts#run": "called by build.ts in the bundle",
  "test/simulate/inside/store.ts#openPostgresStore": "stands in for that of core",
  "test/simulate/inside/transport.ts#chooseTransport": "stands in for that of core",
};

test("what core, bench and test export is imported by another file, but for what plugins may import", () => {
  const used = new Set(IMPORTERS.flatMap(namesUsedBy));
  const unused = [...CORE, ...sources("bench"), ...sources("test")]
    .filter((file) => file !== "core/plugin/plugin.ts" && !/\.test\.ts$|\.d\.mts$/.test(file))
    .flatMap(exportsOf)
    .filter((each) => !used.has(each));
  const wrong = unused.filter((each) => !(each in UNUSED_EXPORTS));
  assert.equal(wrong.length, 0, `only their own files use these: take the export away\n${wrong.join("\n")}`);
  const stale = Object.keys(UNUSED_EXPORTS).filter((each) => !unused.includes(each));
  assert.deepEqual(stale, [], "no longer unused, or no longer there: take them off the list");
});

test("no test of test/unit has an endpoint in its title: what an endpoint does is a test of test/contract", () => {
  const endpoint = /\b(?:GET|HEAD|POST|PUT|PATCH|DELETE|WS) (?:\/|\.\.\.|\$\{)/;
  const titles = /\b(?:test|describe)\(\s*(?:"(.*?)",|`(.*?)`,)/g;
  // A table whose first column is the title, or the beginning of it.
  const rows = /^\s*\[\s*["`]((?:[A-Z]+) (?:\/|\.\.\.)\S* [a-z].*?)["`],/gm;
  const wrong = sources("test/unit").flatMap((file) =>
    [titles, rows]
      .flatMap((pattern) => [...read(file).matchAll(pattern)].map(([, text, template]) => text ?? template!))
      .filter((title) => endpoint.test(title))
      .map((title) => `${file}: ${title}`),
  );
  assert.deepEqual(wrong, []);
});
