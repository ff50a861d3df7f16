/** What boot says of providers that are written wrongly, and of settings that have no effect. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseManifest } from "../../../core/manifest/load.ts";
import { formatPath } from "../../../core/manifest/manifest.ts";
import { BUILT_IN_PLUGINS } from "../../../core/models/builtin.ts";
import { createModels } from "../../../core/models/models.ts";
import { createHost } from "../../../core/registry/host.ts";
import { loadPlugins } from "../../../core/registry/load.ts";
import { silent } from "../../support/providers.ts";

/** The problems of a provider `up` whose model `up/gpt-x` an agent names; warnings are marked. */
async function problemsOf(up: object, agent: object = {}, rest: object = {}): Promise<string[]> {
  const a = { name: "A", description: "An agent", instructions: "Help.", model: "up/gpt-x", memory: false, ...agent };
  const text = JSON.stringify({ name: "Test", version: "1.0.0", providers: { up }, agents: { a }, ...rest });
  const loaded = parseManifest(text, { file: "service.yaml", env: {} });
  assert.deepEqual(loaded.issues, []);
  const { registry } = await loadPlugins([], BUILT_IN_PLUGINS);
  const host = createHost({ logger: silent, env: {} });
  try {
    const { problems } = await createModels(loaded.manifest!, registry, host);
    return problems.map(
      ({ path, message, severity }) => `${severity === "warning" ? "warning: " : ""}${formatPath(path)}: ${message}`,
    );
  } finally {
    await host.close();
  }
}

const compatible = (config: object) => ({ use: "openai-compatible", baseURL: "http://127.0.0.1:1/v1", ...config });
const packaged = (config: object) => ({ use: "@ai-sdk/openai", options: { apiKey: "x" }, ...config });

const CASES: [string, object, string[]][] = [
  [
    "a misspelt key of openai-compatible names the right one",
    compatible({ apikey: "x", conections: 4 }),
    [
      'providers.up.apikey: unknown key, did you mean "apiKey"?',
      'providers.up.conections: unknown key, did you mean "connections"?',
    ],
  ],
  ["connections: 0 is too few", compatible({ connections: 0 }), ["providers.up.connections: must be >= 1"]],
  [
    "a queue without connections has nothing to wait for",
    compatible({ queue: 10 }),
    ["providers.up.connections: is required beside queue"],
  ],
  ["a queue of none beside connections is taken", compatible({ queue: 0, connections: 4 }), []],
  [
    "a base URL that ends with the endpoint is one that too much is in",
    { use: "openai-compatible", baseURL: "http://127.0.0.1:1/v1/chat/completions/" },
    ["providers.up: create failed: baseURL must end before /chat/completions, which is added to it"],
  ],
  [
    "a header that HTTP does not allow is named, without its value",
    compatible({ headers: { "x-one": "a\nb", "x two": "c" } }),
    ['providers.up: create failed: headers: HTTP does not allow the value of "x-one"'],
  ],
  [
    "a name of a header that HTTP does not allow is named",
    compatible({ headers: { "x two": "c" } }),
    ['providers.up: create failed: headers: HTTP does not allow the name "x two"'],
  ],
  [
    "a key that was copied with a character too many is found, and not shown",
    compatible({ apiKey: "sk-12…34" }),
    ["providers.up: create failed: apiKey has a character that HTTP does not allow in a header"],
  ],
  [
    "a misspelt key of a model's settings is no setting of the provider's own",
    compatible({ models: { "gpt-*": { contextwindow: 4, "x-note": "ours" } } }),
    ['providers.up.models["gpt-*"].contextwindow: unknown key, did you mean "contextWindow"?'],
  ],
  [
    "a misspelt key of a model's settings beside a package is found too",
    packaged({ models: { "gpt-x": { price: {} } } }),
    ['providers.up.models.gpt-x.price: unknown key, did you mean "prices"?'],
  ],
  [
    "settings of models that nobody uses are a warning",
    compatible({ models: { "gtp-*": { contextWindow: 4000 }, "gpt-*": { contextWindow: 4000 } } }),
    ['warning: providers.up.models["gtp-*"]: fits none of the models that are used: gpt-x'],
  ],
  [
    "parameters beside a package would not be used",
    packaged({ parameters: { omit: ["temperature"] } }),
    ["providers.up.parameters: packages do not use it: an option that is null in the agent's options is not sent"],
  ],
];

for (const [title, up, expected] of CASES)
  test(`providers at boot: ${title}`, async () => assert.deepEqual(await problemsOf(up), expected));

test("providers at boot: settings of models that nobody uses are fine where a request computes the model", async () => {
  const up = compatible({ models: { "gtp-*": { contextWindow: 4000 } } });
  assert.deepEqual(await problemsOf(up, { model: "{{ context.model }}" }), []);
});

test("providers at boot: a first byte that may come later than a reply may begin is a warning", async () => {
  const up = compatible({ timeouts: { firstByte: "3m" } });
  assert.deepEqual(await problemsOf(up), [
    "warning: providers.up.timeouts.firstByte: is longer than server.limits.request (120 s), which ends requests that do not stream",
  ]);
  assert.deepEqual(await problemsOf(up, {}, { server: { limits: { request: "4m" } } }), []);
  assert.deepEqual(await problemsOf(compatible({ timeouts: { firstByte: "100s" } })), []);
  assert.deepEqual(await problemsOf(compatible({}), {}, { server: { limits: { request: "30s" } } }), []);
});

test("providers at boot: an answer that may be as long as the context window of its model is a warning", async () => {
  const up = compatible({ models: { "gpt-*": { contextWindow: 4096 } } });
  const warning =
    "warning: agents.a.options.maxOutputTokens: leaves no room for a prompt: up/gpt-x takes 4096 tokens of prompt and answer together";
  assert.deepEqual(await problemsOf(up, { options: { maxOutputTokens: 5000 } }), [warning]);
  assert.deepEqual(await problemsOf(up, { options: { maxOutputTokens: { default: 4096, max: 8000 } } }), [warning]);
  assert.deepEqual(await problemsOf(up, { options: { maxOutputTokens: 4000 } }), []);
});
