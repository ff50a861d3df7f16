// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references to the environment, as manifests have them
/** From `providers:` and the models that agents name to chains; what is wrong with them, and where. */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseManifest } from "../../../core/manifest/load.ts";
import { formatPath } from "../../../core/manifest/manifest.ts";
import { BUILT_IN_PLUGINS } from "../../../core/models/builtin.ts";
import { createModels } from "../../../core/models/models.ts";
import { createHost } from "../../../core/registry/host.ts";
import { loadPlugins } from "../../../core/registry/load.ts";
import { startOpenAIUpstream } from "../../support/openai-upstream.ts";
import { ask, partsOf, silent, textOf } from "../../support/providers.ts";

interface Given {
  providers: Record<string, object>;
  /** Of agents a, b, ... in order. */
  models?: (string | string[])[];
  rest?: object;
  folder?: string;
  env?: Record<string, string>;
}

async function setUp(test: TestContext, { providers, models = [], rest = {}, folder, env = {} }: Given) {
  const agents = Object.fromEntries(
    models.map((model, index) => [
      "abcdef"[index],
      { name: "A", description: "An agent", instructions: "Help.", model, memory: false },
    ]),
  );
  const text = JSON.stringify({ name: "Test", version: "1.0.0", providers, agents, ...rest });
  const loaded = parseManifest(text, { file: "service.yaml", env });
  assert.deepEqual(loaded.issues, []);
  const { registry } = await loadPlugins([], BUILT_IN_PLUGINS);
  const host = createHost({ logger: silent, env });
  test.after(() => host.close());
  const { models: made, problems } = await createModels(loaded.manifest!, registry, host, {
    ...(folder === undefined ? {} : { folder }),
    variableOf: (path) => (formatPath(path).endsWith("options.apiKey") ? "MY_KEY" : undefined),
  });
  return { models: made, problems: problems.map(({ path, message }) => `${formatPath(path)}: ${message}`) };
}

async function folderFor(test: TestContext, files: Record<string, string> = {}): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "penstock-models-"));
  test.after(() => rm(folder, { recursive: true, force: true }));
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), text);
  }
  return folder;
}

/** A package on disk whose factory gives models that say what they were made with. */
function packageFiles(name: string, entry: string, manifest: object = { main: "index.js" }): Record<string, string> {
  const root = `node_modules/${name}`;
  return {
    [`${root}/package.json`]: JSON.stringify({ name, version: "1.0.0", ...manifest }),
    [`${root}/index.js`]: entry,
  };
}

const ECHO_PACKAGE = `
  exports.VERSION = "1";
  exports.createOther = () => { throw new Error("the wrong factory"); };
  exports.createEchoModels = (options) => ({
    languageModel: (modelId) => ({
      specificationVersion: "v3", provider: "echo", modelId, supportedUrls: {},
      doGenerate: async () => { throw new Error("unused"); },
      doStream: async () => ({ stream: new ReadableStream({ start(controller) {
        options.changed = true;
        controller.enqueue({ type: "text-start", id: "1" });
        controller.enqueue({ type: "text-delta", id: "1", delta: modelId + " with " + options.greeting });
        controller.enqueue({ type: "text-end", id: "1" });
        controller.enqueue({ type: "finish", finishReason: { unified: "stop" }, usage: { inputTokens: {}, outputTokens: {} } });
        controller.close();
      } }) }),
    }),
  });
`;

test("a chain of the manifest's own provider answers", async (context) => {
  const { models, problems } = await setUp(context, {
    providers: { demo: { use: "scripted" } },
    models: ["demo/echo"],
  });
  assert.deepEqual(problems, []);
  const chain = models.chain(["demo/echo"]);
  assert.equal(chain.id, "demo/echo");
  assert.equal(textOf(await partsOf(chain, ask("hello"))), "hello");
});

test("a chain may span providers, and falls back from one to the other", async (context) => {
  const providers = { bad: { use: "scripted", replies: [{ error: "unavailable" }] }, good: { use: "scripted" } };
  const { models } = await setUp(context, { providers, models: [["bad/echo", "good/echo"]] });
  const chain = models.chain(["bad/echo", "good/echo"]);
  assert.equal(chain.id, "bad/echo");
  assert.equal(textOf(await partsOf(chain, ask("hello"))), "hello");
});

test("the package @ai-sdk/openai-compatible works by its npm name, with options for its factory", async (context) => {
  const upstream = await startOpenAIUpstream();
  context.after(() => upstream.close());
  const options = { name: "local", baseURL: upstream.baseURL, apiKey: "sk-1" };
  const providers = { local: { use: "@ai-sdk/openai-compatible", options, retries: 0 } };
  const { models, problems } = await setUp(context, { providers, models: ["local/vendor/model-7b"] });
  assert.deepEqual(problems, []);
  assert.equal(textOf(await partsOf(models.chain(["local/vendor/model-7b"]), ask("hello"))), "hello");
  assert.equal(upstream.requests[0]?.body.model, "vendor/model-7b");
  assert.equal(upstream.requests[0]?.headers.authorization, "Bearer sk-1");
  assert.deepEqual((await models.embedding("local/e").doEmbed({ values: ["one"] })).embeddings, [[3, 3, 0]]);
});

test("a package is taken from the manifest's folder; its factory gets a copy of the options", async (context) => {
  const folder = await folderFor(context, packageFiles("echo-models", ECHO_PACKAGE));
  const providers = { local: { use: "echo-models", options: { greeting: "joy" } } };
  const { models, problems } = await setUp(context, { providers, models: ["local/m1"], folder });
  assert.deepEqual(problems, []);
  assert.equal(textOf(await partsOf(models.chain(["local/m1"]), ask("x"))), "m1 with joy");
});

test("a package that is for import alone is found as well", async (context) => {
  const entry = `${ECHO_PACKAGE.replace("exports.createEchoModels", "export const createEchoModels").replace(/exports\.[^\n]*\n/g, "\n")}`;
  const manifest = { type: "module", exports: { ".": { import: { types: "./x.d.ts", default: "./index.js" } } } };
  const folder = await folderFor(context, packageFiles("@scope/echo-models", entry, manifest));
  const providers = { local: { use: "@scope/echo-models", options: { greeting: "joy" } } };
  const { models, problems } = await setUp(context, { providers, models: ["local/m1"], folder });
  assert.deepEqual(problems, []);
  assert.equal(textOf(await partsOf(models.chain(["local/m1"]), ask("x"))), "m1 with joy");
});

test("a missing package of a named provider is a problem that says how to install it, and where", async (context) => {
  const folder = await folderFor(context);
  const providers = { claude: { use: "@ai-sdk/cerebras", options: { apiKey: "k" } } };
  const { problems } = await setUp(context, { providers, models: ["claude/claude-x"], folder });
  assert.deepEqual(problems, [
    `providers.claude.use: the package "@ai-sdk/cerebras" is not installed: run npm install @ai-sdk/cerebras in ${folder}`,
  ]);
});

test("an empty key of a named provider is a problem that says which, and which variable to set", async (context) => {
  const providers = {
    local: {
      use: "@ai-sdk/openai-compatible",
      options: { name: "x", baseURL: "http://127.0.0.1:1/v1", apiKey: "${MY_KEY:-}" },
    },
  };
  const { problems } = await setUp(context, { providers, models: ["local/m"] });
  assert.deepEqual(problems, [
    "providers.local.options.apiKey: is empty, and an agent or a memory uses this provider: set it, or the environment variable MY_KEY",
  ]);
});

test("a key that the package itself misses is one problem, in the package's words, however many agents name it", async (context) => {
  const entry = `
    class LoadAPIKeyError extends Error { name = "AI_LoadAPIKeyError"; }
    exports.createKeyed = () => ({ languageModel: () => ({ specificationVersion: "v3",
      config: { headers: () => { throw new LoadAPIKeyError("Keyed API key is missing: set KEYED_API_KEY."); } } }) });`;
  const folder = await folderFor(context, packageFiles("keyed", entry));
  const { problems } = await setUp(context, { providers: { k: { use: "keyed" } }, models: ["k/m", "k/n"], folder });
  assert.deepEqual(problems, ["providers.k: Keyed API key is missing: set KEYED_API_KEY."]);
});

test("a package of a version of the AI SDK's interface that is not known is a problem that names it and what to install", async (context) => {
  const entry = 'exports.createNew = () => ({ languageModel: () => ({ specificationVersion: "v5" }) });';
  const folder = await folderFor(context, packageFiles("new-one", entry));
  const { problems } = await setUp(context, { providers: { n: { use: "new-one" } }, models: [["n/m"]], folder });
  assert.match(
    problems[0]!,
    /^providers\.n: the models of "new-one" speak version v5 of the AI SDK's model interface, and v2, v3, v4 are understood: install/,
  );
});

const BAD_PACKAGES: [string, string, RegExp][] = [
  ["holds no factory", "exports.x = 1;", /is not an AI SDK provider: it exports no create function/],
  [
    "creates something else",
    "exports.createX = () => ({});",
    /is not an AI SDK provider: what it creates has no languageModel/,
  ],
  ["throws when it is loaded", 'throw new Error("needs a GPU");', /cannot be loaded: needs a GPU/],
  [
    "refuses its options",
    'exports.createX = () => { throw new Error("region is required"); };',
    /does not take these options: region is required/,
  ],
];

for (const [title, entry, message] of BAD_PACKAGES) {
  test(`a package that ${title} is a problem`, async (context) => {
    const folder = await folderFor(context, packageFiles("bad-one", entry));
    const { problems } = await setUp(context, { providers: { b: { use: "bad-one" } }, models: ["b/m"], folder });
    assert.equal(problems.length, 1);
    assert.match(problems[0]!, message);
    assert.match(problems[0]!, /^providers\.b\.use: /);
  });
}

test("a provider that nobody names is neither made nor imported, and needs no key", async (context) => {
  const providers = {
    demo: { use: "scripted" },
    claude: { use: "@ai-sdk/cerebras", options: { apiKey: "${ANTHROPIC_API_KEY:-}" } },
    openai: { use: "openai-compatible", baseURL: "https://api.openai.com/v1", apiKey: "${OPENAI_API_KEY:-}" },
  };
  const { models, problems } = await setUp(context, { providers, models: ["demo/echo"] });
  assert.deepEqual(problems, []);
  assert.throws(() => models.chain(["claude/x"]), { kind: "invalid_input" });
});

test("a provider that nobody names is still checked for its shape", async (context) => {
  const providers = {
    demo: { use: "scripted", chunks: "many" },
    openai: { use: "openai-compatible", conections: 5 },
    claude: { use: "@ai-sdk/cerebras", apiKey: "k" },
    "x.y": { use: "scripted", "x-note": "our own" },
  };
  const { problems } = await setUp(context, { providers });
  assert.deepEqual(problems, [
    "providers.demo.chunks: must be integer",
    "providers.openai.baseURL: is required",
    'providers.openai.conections: unknown key, did you mean "connections"?',
    "providers.claude.apiKey: unknown key: the options of a package go in options",
  ]);
});

test("an openai-compatible provider without a key is made: it sends no Authorization", async (context) => {
  const providers = { local: { use: "openai-compatible", baseURL: "http://127.0.0.1:1/v1", apiKey: "" } };
  assert.deepEqual((await setUp(context, { providers, models: ["local/m"] })).problems, []);
});

test("an unknown model of scripted is a problem at the agent that names it", async (context) => {
  const { problems } = await setUp(context, {
    providers: { demo: { use: "scripted" } },
    models: ["demo/echo", ["demo/echo", "demo/gpt"]],
  });
  assert.deepEqual(problems, ['agents.b.model[1]: model "demo/gpt": no model "gpt": the models are echo']);
});

test("what a provider says when it is made is a problem at its entry", async (context) => {
  const { problems } = await setUp(context, {
    providers: { demo: { use: "scripted", delay: "soon" } },
    models: ["demo/echo"],
  });
  assert.deepEqual(problems, [
    'providers.demo: create failed: delay: "soon" is not a duration: write a number and ms, s, m, h or d, like "5s"',
  ]);
});

test("a memory's embedding model names its provider too", async (context) => {
  const providers = { demo: { use: "scripted" }, vectors: { use: "@ai-sdk/nothing" } };
  const memory = {
    first: { semantic: { embedding: "demo/e" } },
    second: { semantic: { embedding: "vectors/e" } },
    third: { semantic: { embedding: "local/hash" } },
  };
  const folder = await folderFor(context);
  const { problems } = await setUp(context, { providers, rest: { memory }, folder });
  assert.deepEqual(problems, [
    `providers.vectors.use: the package "@ai-sdk/nothing" is not installed: run npm install @ai-sdk/nothing in ${folder}`,
    "memory.first.semantic.embedding: demo/e: the provider has no embedding models",
  ]);
});

test("where an agent computes its model, every provider that can be made is there, and the others are no problem", async (context) => {
  const providers = { demo: { use: "scripted" }, missing: { use: "@ai-sdk/cerebras" } };
  const folder = await folderFor(context);
  const { models, problems } = await setUp(context, { providers, models: ["{{ context.model }}"], folder });
  assert.deepEqual(problems, []);
  assert.equal(textOf(await partsOf(models.chain(["demo/echo"]), ask("hello"))), "hello");
  for (const [name, message] of [
    ["missing/m", /unknown provider "missing"; known: demo/],
    ["dmo/echo", /unknown provider "dmo", did you mean "demo"\?/],
    ["demo/gpt", /model "demo\/gpt": no model "gpt": the models are echo/],
    ["", /unknown provider ""/],
  ] as const) {
    assert.throws(
      () => models.chain([name]),
      (thrown: Error & { kind?: string }) => thrown.kind === "invalid_input" && message.test(thrown.message),
    );
  }
  assert.throws(() => models.chain([]), { kind: "invalid_input" });
});
