/** The rules that keep the code in parts: which may import which, how large a file is, what must not happen at import. */
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

/** Imports go to a lower rank, or stay in their part: a folder of core, or a file right below it. */
const RANKS: readonly (readonly string[])[] = [
  [
    "generated",
    "core/plugin/access-lists.ts",
    "core/lib/clock.ts",
    "core/lib/bounded-errors.ts",
    "core/lib/errors.ts",
    "core/lib/duration.ts",
    "core/lib/host-name.ts",
    "core/lib/schema-shape.ts",
    "core/lib/unique-items.ts",
    "core/lib/thenable.ts",
    "core/lib/version.ts",
  ],
  ["core/lib/json-schema.ts"],
  ["core/manifest", "core/observability"],
  ["core/plugin/template.ts"],
  ["core/plugin/plugin.ts"],
  ["core/registry", "core/http"],
  ["core/storage"],
  ["core/tools", "core/memory", "core/traces"],
  ["core/agents"],
  ["core/workflows"],
  ["core/auth", "core/platform", "core/mcp", "core/a2a"],
  ["core/api"],
  ["core/transport", "core/codegen"],
  ["core/app/service.ts", "core/app/cors.ts"],
  ["core/app/boot.ts"],
  ["core/app/start.ts"],
  ["core/command"],
  ["core/command/main.ts"],
];

/** What a plugin is names the parts that it is for; what a service consists of is what handlers see. */
const MUTUAL_TYPES = ["core/plugin/plugin.ts", "core/app/service.ts"];

/** Files that may be longer than the cap, each with its reason. */
const LONG_FILES: Record<string, string> = {};
const LONGEST = 300;

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

/** `core/agents/chat.ts` -> `core/agents`; `core/command/main.ts` -> `core/command/main.ts`. */
const partOf = (file: string) =>
  file.startsWith("core/") ? file.split("/").slice(0, 2).join("/") : file.split("/")[0]!;
const rankOf = (part: string) => RANKS.findIndex((parts) => parts.includes(part));

const CORE = sources("core");
const PLUGINS = sources("plugins");

test("every part of core has a rank", () => {
  assert.deepEqual(
    [...new Set(CORE.map(partOf))].filter((part) => rankOf(part) === -1),
    [],
  );
});

test("imports of core point one way, and parts of one rank do not know each other", () => {
  const wrong = CORE.flatMap(importsOf)
    .filter(({ from, to, types }) => !types && /^(core|generated)\//.test(to) && partOf(from) !== partOf(to))
    .filter(({ from, to }) => rankOf(partOf(to)) >= rankOf(partOf(from)))
    .map(({ from, to }) => `${from} imports ${to}`);
  assert.deepEqual(wrong, []);
});

test("types point the same way, but for what a plugin is and what a service is", () => {
  const wrong = CORE.flatMap(importsOf)
    .filter(({ from, to, types }) => types && /^(core|generated)\//.test(to) && partOf(from) !== partOf(to))
    .filter(
      ({ from, to }) =>
        !MUTUAL_TYPES.includes(from) && !MUTUAL_TYPES.includes(to) && rankOf(partOf(to)) > rankOf(partOf(from)),
    )
    .map(({ from, to }) => `${from} imports types of ${to}`);
  assert.deepEqual(wrong, []);
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

test(`no file is longer than ${LONGEST} lines`, () => {
  const lines = (file: string) => read(file).split("\n").length - 1;
  const long = [...CORE, ...PLUGINS, ...sources("bench")].filter(
    (file) => lines(file) > LONGEST && !(file in LONG_FILES),
  );
  assert.deepEqual(
    long.map((file) => `${file}: ${lines(file)} lines`),
    [],
  );
  const stale = Object.keys(LONG_FILES).filter((file) => lines(file) <= LONGEST);
  assert.deepEqual(stale, [], "no longer long: take them off the list");
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
    assert.ok(text.split("\n").length <= LONGEST, file);
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
