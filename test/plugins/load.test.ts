import assert from "node:assert/strict";
import { symlinkSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { BUILT_IN_PLUGINS } from "../../core/models/builtin.ts";
import { type PluginKind, ServiceError } from "../../core/plugin/plugin.ts";
import { PLUGIN_KINDS } from "../../core/registry/kinds.ts";
import { loadPlugins, pluginIssue } from "../../core/registry/load.ts";
import { type PluginProblem, shortPath } from "../../core/registry/problem.ts";
import { EXAMPLES, pluginFolder } from "../support/plugin-folder.ts";

/** `tools/add.ts: shape: execute is missing` */
const formatPluginProblem = ({ file, phase, cause }: PluginProblem, base = process.cwd()) =>
  `${shortPath(file, base)}: ${phase}: ${cause}`;

const load = (folder: string) => loadPlugins([folder], BUILT_IN_PLUGINS);

/** The problems of a folder, as `tools/x.ts: phase: cause`. */
async function problemsOf(t: TestContext, files: Record<string, string>): Promise<string[]> {
  const root = pluginFolder(t, files);
  const { problems } = await load(root);
  return problems.map((problem) => formatPluginProblem(problem, root));
}

const TOOL = 'export default { kind: "tool", execute: () => 1 };';

test("the example plugins load without a problem", async () => {
  const { registry, problems } = await loadPlugins([EXAMPLES], BUILT_IN_PLUGINS);
  assert.deepEqual(problems, []);
  assert.deepEqual(registry.get("tool", "add")?.execute({ a: 2, b: 3 }, null as never), { sum: 5 });
  assert.deepEqual(registry.names("step"), ["add-tax", "audit", "slow"]);
  assert.equal(registry.get("tool", "nothing"), undefined);
  assert.equal(registry.get("step", "add"), undefined, "a name belongs to one kind");
});

test("a plain object and a helper's object both load, named by the file unless they say a name", async (t) => {
  const root = pluginFolder(t, {
    "tools/plain.ts": TOOL,
    "tools/helped.ts":
      'import { defineTool } from "#plugin"; export default defineTool({ name: "other", execute: () => 2 });',
    "vectors/near.ts": 'import { defineVectors } from "#plugin"; export default defineVectors({ create: () => ({}) });',
  });
  const { registry, problems } = await load(root);
  assert.deepEqual(problems, []);
  assert.equal(registry.get("tool", "plain")?.execute(null, null as never), 1);
  assert.equal(registry.get("tool", "other")?.execute(null, null as never), 2);
  assert.equal(registry.entry("tool", "other")?.file, join(root, "tools/helped.ts"));
  assert.deepEqual(registry.names("vectors"), ["near"]);
});

const HELPED = `import { defineTool, ServiceError } from "#plugin";
import { helper } from "./lib/helper.js";
export default defineTool({ execute: () => { throw new ServiceError("conflict", helper); } });`;
const PACKAGES = { "ES modules": '{ "type": "module" }', CommonJS: '{ "name": "mine" }', "no package.json": null };

for (const [name, contents] of Object.entries(PACKAGES)) {
  test(`#plugin and penstock-gateway/plugin resolve in .ts, .mts, .js and .mjs of a folder outside the project: ${name}`, async (t) => {
    const root = pluginFolder(t, {
      ...(contents === null ? {} : { "package.json": contents }),
      "tools/lib/helper.ts": 'export const helper = "no";',
      "tools/typed.ts": HELPED,
      "tools/named.ts": HELPED.replace("#plugin", "penstock-gateway/plugin"),
      "tools/named-module.mjs": HELPED.replace("helper.js", "helper.ts").replace("#plugin", "penstock-gateway/plugin"),
      "tools/module.mts": HELPED.replace("helper.js", "helper.ts"),
      "tools/script.js": HELPED.replace("helper.js", "helper.ts"),
      "tools/script-module.mjs": HELPED.replace("helper.js", "helper.ts"),
    });
    const { registry, problems } = await load(root);
    assert.deepEqual(problems, []);
    for (const file of ["typed", "named", "named-module", "module", "script", "script-module"]) {
      const run = () => registry.get("tool", file)?.execute({}, null as never);
      assert.throws(
        run,
        (error) => error instanceof ServiceError && error.kind === "conflict",
        `${file}: core's own class`,
      );
    }
  });
}

test("a CommonJS plugin with require and module.exports loads, by both names of #plugin", async (t) => {
  const source = 'const { defineTool } = require("#plugin");\nmodule.exports = defineTool({ execute: () => 3 });';
  const named = source.replace("#plugin", "penstock-gateway/plugin");
  const { registry, problems } = await load(pluginFolder(t, { "tools/old.js": source, "tools/named.js": named }));
  assert.deepEqual(problems, []);
  for (const name of ["old", "named"]) assert.equal(registry.get("tool", name)?.execute(null, null as never), 3);
});

/** By kind, the fields that a plugin of it must have. */
const MINIMAL: Record<PluginKind, string> = {
  tool: "execute: () => 1",
  step: "execute: () => 1",
  route: 'method: "GET", path: "/x", handle: () => 1',
  auth: "create: () => ({})",
  provider: "create: () => ({})",
  embedding: "create: () => ({})",
  vectors: "create: () => ({})",
  store: "create: () => ({})",
  origin: "origin: () => true",
  socket: 'path: "/s"',
};

for (const [name, contents] of Object.entries(PACKAGES)) {
  test(`a plugin of every kind may wait at its top level, in .ts, .mts, .js and .mjs: ${name}`, async (t) => {
    const files = PLUGIN_KINDS.flatMap(({ kind, folder }) =>
      [".ts", ".mts", ".js", ".mjs"].map((ending) => {
        const own = `export default { kind: "${kind}", name: "${kind}${ending}", ${MINIMAL[kind]}, ready };`;
        const source = `import { helper } from "./lib/helper${ending}";\nconst ready = await Promise.resolve(helper);\n${own}`;
        return [`${folder}/waits-in${ending.slice(1)}${ending}`, source] as const;
      }),
    );
    const helpers = PLUGIN_KINDS.flatMap(({ folder }) =>
      [".ts", ".mts", ".js", ".mjs"].map(
        (ending) => [`${folder}/lib/helper${ending}`, "export const helper = await Promise.resolve(7);"] as const,
      ),
    );
    const root = pluginFolder(t, {
      ...(contents === null ? {} : { "package.json": contents }),
      ...Object.fromEntries([...files, ...helpers]),
    });
    const { registry, problems } = await load(root);
    assert.deepEqual(problems, []);
    for (const { kind } of PLUGIN_KINDS)
      for (const ending of [".ts", ".mts", ".js", ".mjs"])
        assert.equal((registry.get(kind, `${kind}${ending}`) as { ready?: number } | undefined)?.ready, 7);
  });
}

test("a default export that CommonJS has wrapped into { default } is unwrapped", async (t) => {
  const root = pluginFolder(t, {
    "tools/lib/inner.ts": TOOL,
    "tools/outer.mts": 'import inner from "./lib/inner.ts"; export default inner;',
  });
  const { registry, problems } = await load(root);
  assert.deepEqual(problems, []);
  assert.equal(registry.get("tool", "outer")?.execute(null, null as never), 1);
});

test("a folder of symbolic links, as a mounted volume has it, loads", async (t) => {
  const source = pluginFolder(t, { "tools/linked.ts": TOOL });
  const root = pluginFolder(t, { "README.md": "" });
  symlinkSync(join(source, "tools"), join(root, "tools"));
  assert.equal((await load(root)).registry.get("tool", "linked")?.kind, "tool");
});

test("what goes with plugins and is none is left alone", async (t) => {
  const problems = await problemsOf(t, {
    "README.md": "",
    "package.json": "{}",
    ".eslintrc.js": "",
    "node_modules/x/index.js": "",
    "data/table.csv": "",
    "tools/README.md": "",
    "tools/.hidden.py": "",
    "tools/types.d.ts": "",
    "tools/lib/helper.py": "",
    "tools/lib/helper.ts": "not a plugin",
    "tools/good.ts": TOOL,
  });
  assert.deepEqual(problems, []);
});

test("files that lie where no plugin is looked for, or end in something else, are problems", async (t) => {
  const all = "tools/, steps/, routes/, auth/, providers/, embeddings/, vectors/, stores/, origins/, sockets/";
  assert.deepEqual(
    await problemsOf(t, {
      "loose.ts": TOOL,
      "tool/add.ts": TOOL,
      "helpers/x.ts": "",
      "tools/add.py": "",
      "tools/add.cjs": "",
      "tools/Makefile": "",
    }),
    [
      `helpers/x.ts: import: helpers/ is not the folder of a kind of plugin: the folders are ${all} (helpers go in a folder inside a kind's folder)`,
      `loose.ts: import: a plugin file must be in the folder of its kind (${all}): move it there`,
      "tool/add.ts: import: tool/ is not the folder of a kind of plugin: did you mean tools/? (helpers go in a folder inside a kind's folder)",
      "tools/Makefile: import: a plugin file ends in .ts, .mts, .js, .mjs, not in nothing",
      "tools/add.cjs: import: a plugin file ends in .ts, .mts, .js, .mjs, not in .cjs",
      "tools/add.py: import: a plugin file ends in .ts, .mts, .js, .mjs, not in .py",
    ],
  );
});

test("a plugin folder that does not exist is a problem", async () => {
  const { problems } = await load("/nowhere/plugins");
  assert.deepEqual(
    problems.map((problem) => formatPluginProblem(problem)),
    ["/nowhere/plugins: import: the plugin folder cannot be read: it does not exist"],
  );
});

test("files that cannot be imported say why in one line, all of them at once, and hide no other", async (t) => {
  const root = pluginFolder(t, {
    "package.json": '{ "type": "module" }',
    "tools/good.ts": TOOL,
    "tools/package.ts": 'import "a-package-nobody-has/deep";\nexport default {};',
    "tools/other.ts": 'import { defineTool } from "penstock";\nexport default defineTool({});',
    "tools/part.ts": 'import "./lost.ts";\nexport default {};',
    "tools/exits.ts": "\n\nprocess.exit(3);\n",
    "tools/name.ts": 'import { nope } from "#plugin";\nexport default nope;',
    "tools/syntax.ts": 'export default {\n  kind: "tool",\n  execute: (\n};\n',
    "tools/syntax-module.mjs": "export default {,};",
    "tools/throws.ts": '\n\nthrow new Error("API_KEY is not set\\nset it");\n',
    "tools/throws-text.mjs": 'throw "text";',
  });
  const { registry, problems } = await load(root);
  assert.deepEqual(
    problems.map((problem) => formatPluginProblem(problem, root)),
    [
      "tools/exits.ts: import: threw while it was imported (line 3): process.exit ends the whole service: throw an error instead",
      "tools/name.ts: import: The requested module '#plugin' does not provide an export named 'nope' (line 1)",
      'tools/other.ts: import: there is no penstock: plugins import from "#plugin" or "penstock-gateway/plugin"',
      `tools/package.ts: import: package "a-package-nobody-has" is not installed in ${root}/node_modules or a folder above: run npm install --prefix ${root} a-package-nobody-has`,
      `tools/part.ts: import: cannot find ${join(root, "tools/lost.ts")}`,
      "tools/syntax-module.mjs: import: syntax error: Unexpected token ','",
      'tools/syntax.ts: import: syntax error in line 4, column 1: Unexpected "}"',
      "tools/throws-text.mjs: import: threw while it was imported: text",
      "tools/throws.ts: import: threw while it was imported (line 3): API_KEY is not set set it",
    ],
  );
  assert.ok(problems.every(({ cause }) => !cause.includes("    at ")));
  assert.ok(registry.get("tool", "good"));
});

test("a package that is missing is said with the folder that it belongs into: that of the nearest package.json, or that of the manifest", async (t) => {
  const source = 'import "@nobody/has-it/deep";\nexport default {};';
  const causes = async (files: Record<string, string>, folder: string) => {
    const top = pluginFolder(t, files);
    const { problems } = await load(join(top, folder));
    return problems.map(({ file, cause }) => [file.slice(top.length + 1), cause.replaceAll(top, "TOP")]);
  };
  assert.deepEqual(await causes({ "plugins/tools/a.ts": source }, "plugins"), [
    [
      "plugins/tools/a.ts",
      'package "@nobody/has-it" is not installed in TOP/node_modules or a folder above: run npm install --prefix TOP @nobody/has-it',
    ],
  ]);
  const imported = {
    "mine/package.json": "{}",
    "mine/tools/b.mjs": 'import "../../shared/c.mjs";\nexport default {};',
    "shared/package.json": "{}",
    "shared/c.mjs": source,
  };
  assert.deepEqual(await causes(imported, "mine"), [
    [
      "mine/tools/b.mjs",
      'package "@nobody/has-it", which TOP/shared/c.mjs imports, is not installed in TOP/shared/node_modules or a folder above: run npm install --prefix TOP/shared @nobody/has-it',
    ],
  ]);
});

const SHAPES: Record<string, [source: string, causes: string[]]> = {
  "tools/no-default.ts": [
    "export const tool = 1;",
    ['has no default export: write export default { kind: "tool", ... }'],
  ],
  "tools/a-function.ts": [
    "export default () => 1;",
    ['the default export must be an object with kind: "tool", not a function'],
  ],
  "tools/no-kind.ts": [
    "export default { execute: () => 1 };",
    ['kind is missing: add kind: "tool", or export through defineTool of #plugin'],
  ],
  "tools/wrong-kind.ts": [
    'export default { kind: "step", execute: () => 1 };',
    ['kind is "step", but the file is in tools/: move it to steps/, or make it kind: "tool"'],
  ],
  "tools/unknown-kind.ts": [
    'export default { kind: "constructor", execute: () => 1 };',
    ['kind must be "tool" in tools/, not "constructor"'],
  ],
  "tools/no-execute.ts": [
    'export default { kind: "tool", excute: () => 1 };',
    ['unknown key "excute", did you mean "execute"?'],
  ],
  "tools/fields.ts": [
    'export default { kind: "tool", name: "a b", tags: "x", timeout: "5 apples", approval: "yes", desciption: "", extra: 1, execute: "x" };',
    [
      "name must be letters, digits, _, . or -, at most 128",
      "tags must be a list of strings",
      'timeout must be a duration like "250ms" or "5s"',
      "approval must be true, false or one {{ expression }}",
      "execute must be a function",
      'unknown key "desciption", did you mean "description"?',
    ],
  ],
  "tools/parameters.ts": [
    'export default { kind: "tool", parameters: { type: "object", properties: { a: { type: "strin" } }, required: "a" }, execute: () => 1 };',
    [
      'parameters is not a JSON Schema: properties.a.type must be array, boolean, integer, null, number, object or string, not "strin"; required must be a list of strings',
    ],
  ],
  "tools/circle.ts": [
    'const node = { type: "object", properties: { "a/b": { type: "object" } } }; node.properties["a/b"].properties = { child: node, parent: node.properties["a/b"] }; const shared = { type: "string" }; export default { kind: "tool", parameters: { properties: { one: shared, two: shared, node } }, execute: () => 1 };',
    [
      'parameters is not a JSON Schema: properties.node.properties["a/b"].properties.child is the object that it is in, which never ends: write { $ref: "#/properties/node" } there',
    ],
  ],
  "tools/bad name.ts": [TOOL, ['"bad name" cannot be a name: rename the file, or give the plugin a name']],
  "routes/fetch.ts": [
    'export default { kind: "route", method: "FETCH", path: "hello", handle: 1 };',
    [
      "method must be one of GET, POST, PUT, PATCH, DELETE",
      "path must be a path that begins with /",
      "handle must be a function",
    ],
  ],
  "providers/half.ts": ['export default { kind: "provider", name: "half" };', ["create is missing"]],
  "sockets/half.ts": ['export default { kind: "socket" };', ["path is missing"]],
  "origins/half.ts": ['export default { kind: "origin", origin: "*" };', ["origin must be a function"]],
};

test("files that export something else than a plugin of their folder's kind say what is wrong with it", async (t) => {
  const sources = Object.fromEntries(Object.entries(SHAPES).map(([file, [source]]) => [file, source]));
  const expected = Object.entries(SHAPES).flatMap(([file, [, causes]]) =>
    causes.map((cause) => `${file}: shape: ${cause}`),
  );
  assert.deepEqual((await problemsOf(t, sources)).sort(), expected.sort());
});

test("a config that is no JSON Schema is a problem of phase config", async (t) => {
  const source =
    'export default { kind: "step", config: { properties: { rate: { minimum: "0" } } }, execute: () => 1 };';
  assert.deepEqual(await problemsOf(t, { "steps/tax.ts": source }), [
    "steps/tax.ts: config: config.properties.rate.minimum must be a number",
  ]);
});

test("a config that refers to itself is a problem of its file and field, also in what is no schema", async (t) => {
  const schema = "const rate = { default: {} }; rate.default.again = rate; const config = { properties: { rate } };";
  const source = `${schema} export default { kind: "step", config, execute: () => 1 };`;
  assert.deepEqual(await problemsOf(t, { "steps/tax.ts": source }), [
    'steps/tax.ts: config: config.properties.rate.default.again is the object that it is in, which never ends: write { $ref: "#/properties/rate" } there',
  ]);
});

test("keywords of a plugin's schemas that JSON Schema does not know are notices with their place, and the plugin loads", async (t) => {
  const root = pluginFolder(t, {
    "tools/cook.ts": `export default { kind: "tool", execute: () => 1,
      config: { type: "object", propertys: {} },
      parameters: { type: "object", properties: { dish: { type: "string", maxlength: 9, "x-mine": 1, example: "soup" } } } };`,
    "routes/dish.ts": `export default { kind: "route", method: "POST", path: "/dish", handle: () => 1,
      body: { dish: { type: "string" } } };`,
  });
  const { registry, problems, notices } = await load(root);
  assert.deepEqual(problems, []);
  assert.deepEqual(registry.names("tool"), ["cook"]);
  assert.deepEqual(
    notices.map((notice) => formatPluginProblem(notice, root)),
    [
      'routes/dish.ts: shape: body.dish is not a keyword of JSON Schema and has no effect: write a field below "properties"',
      'tools/cook.ts: config: config.propertys is not a keyword of JSON Schema and has no effect: did you mean "properties"?',
      'tools/cook.ts: shape: parameters.properties.dish.maxlength is not a keyword of JSON Schema and has no effect: did you mean "maxLength"?',
    ],
  );
});

test("two plugins of one kind and name are a problem that names both files; kinds do not share names", async (t) => {
  const root = pluginFolder(t, {
    "tools/one.ts": TOOL,
    "tools/one.mjs": TOOL,
    "tools/two.ts": 'export default { kind: "tool", name: "one", execute: () => 1 };',
    "steps/one.ts": 'export default { kind: "step", execute: () => 1 };',
  });
  const { registry, problems } = await load(root);
  const taken = `the tool name "one" is taken by ${join(root, "tools/one.mjs")}: rename one of them`;
  assert.deepEqual(
    problems.map((problem) => formatPluginProblem(problem, root)),
    [`tools/one.ts: shape: ${taken}`, `tools/two.ts: shape: ${taken}`],
  );
  assert.ok(registry.get("step", "one"));
});

test("a user's plugin takes the place of a built-in one with its name, and that is told", async (t) => {
  const root = pluginFolder(t, {
    "tools/add.ts": TOOL,
    "providers/scripted.ts": 'export default { kind: "provider", create: () => ({ languageModel: () => ({}) }) };',
  });
  const { registry, problems, replaced } = await load(root);
  assert.deepEqual(problems, []);
  assert.equal(registry.entry("provider", "scripted")?.file, join(root, "providers/scripted.ts"));
  assert.deepEqual(
    replaced.map(({ kind, name }) => `${kind} ${name}`),
    ["provider scripted"],
  );
  assert.deepEqual(registry.names("provider"), ["openai-compatible", "scripted"]);
});

test("naming the same folder twice loads it once", async (t) => {
  const root = pluginFolder(t, { "tools/mine.ts": TOOL });
  const { registry, problems } = await loadPlugins([root, `${root}/`]);
  assert.deepEqual(problems, []);
  assert.deepEqual(
    registry.names("tool").filter((name) => name === "mine"),
    ["mine"],
  );
});

test("what is wrong with an export is reported with the line of the field, and with the first where it is in none", async (t) => {
  const root = pluginFolder(t, {
    "steps/nested.ts":
      'export default {\n  kind: "step",\n  config: {\n    properties: {\n      rate: {\n        minimum: "0",\n      },\n    },\n  },\n  execute: () => 1,\n};\n',
    "tools/fields.ts": 'export default {\n  kind: "tool",\n  tags: "x",\n  "desciption": "",\n  execute() {},\n};\n',
    "tools/no-default.ts": "\n\nexport const tool = 1;\n",
  });
  const { problems } = await load(root);
  assert.deepEqual(
    problems.map(pluginIssue).map(({ file, line, message }) => `${file.slice(root.length + 1)}:${line}: ${message}`),
    [
      "steps/nested.ts:6: config.properties.rate.minimum must be a number",
      "tools/fields.ts:3: tags must be a list of strings",
      'tools/fields.ts:4: unknown key "desciption", did you mean "description"?',
      'tools/no-default.ts:1: has no default export: write export default { kind: "tool", ... }',
    ],
  );
});

test("process.exit in a plugin that works throws, whichever of several loads ended first", async (t) => {
  const leaves = (code: number) => `export default { kind: "tool", execute: () => process.exit(${code}) };`;
  const roots = [1, 2].map((code) => pluginFolder(t, { "tools/leaves.ts": leaves(code) }));
  const loaded = await Promise.all(roots.map(load));
  for (const { registry } of loaded) {
    const tool = registry.get("tool", "leaves")!;
    assert.throws(() => tool.execute({}, {} as never), /process\.exit ends the whole service: throw an error instead/);
  }
});
