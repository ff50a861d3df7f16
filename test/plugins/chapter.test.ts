import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";
import type { PluginKind, PluginKinds, StepContext } from "../../core/plugin/plugin.ts";
import { CommitConflict, ServiceError } from "../../core/plugin/plugin.ts";
import { createInstance } from "../../core/registry/create.ts";
import { createHost } from "../../core/registry/host.ts";
import { PLUGIN_KINDS } from "../../core/registry/kinds.ts";
import { loadPlugins } from "../../core/registry/load.ts";
import type { Registry } from "../../core/registry/registry.ts";
import { createNamespaces } from "../../core/storage/keyv-namespace.ts";
import { openStore } from "../../core/storage/open-store.ts";
import { vectorsSuite } from "../suites/vectors.suite.ts";
import { ROOT } from "../support/command-line.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { settingsOf } from "../support/providers.ts";
import { manifestWith, startService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";
import { origin, silent } from "../support/tools.ts";

const CHAPTERS = ["docs/plugins.md", "docs/plugins/web.md", "docs/plugins/backends.md"];
const TEXT = CHAPTERS.map((path) => readFileSync(join(ROOT, path), "utf8")).join("\n");
const EXAMPLES = [...TEXT.matchAll(/```ts\n\/\/ (\S+)\n(.*?)```/gs)].map(
  ([, file, source]) => [file!, source!] as const,
);
const host = createHost({ logger: silent, env: {} });
let registry: Registry;

const get = <K extends PluginKind>(kind: K, name: string): PluginKinds[K] => {
  const plugin = registry.get(kind, name);
  assert.ok(plugin, `${kind} ${name} is in the chapters on plugins`);
  return plugin;
};

before(async (t) => {
  const root = pluginFolder(t as never, Object.fromEntries(EXAMPLES));
  const loaded = await loadPlugins([root]);
  assert.deepEqual(loaded.problems, []);
  registry = loaded.registry;
});

test("docs/plugins.md and docs/plugins/ have an example of every kind, none longer than 25 lines", () => {
  for (const { folder } of PLUGIN_KINDS)
    assert.ok(
      EXAMPLES.some(([file]) => file.startsWith(`${folder}/`)),
      folder,
    );
  for (const [file, source] of EXAMPLES) assert.ok(source.trimEnd().split("\n").length <= 25, file);
});

test("docs/plugins.md: the tool converts with its default rate", () => {
  const { call } = origin();
  const result = get("tool", "convert").execute({ amount: 10 }, { ...call, context: {}, config: { rate: 2 } });
  assert.deepEqual(result, { amount: 20 });
});

test("docs/plugins/web.md: the route answers, and 404 for another item", () => {
  const { call } = origin();
  const ask = (item: string) =>
    get("route", "stock").handle({ query: {}, params: { item }, body: null, user: null, headers: {} }, call as never);
  assert.deepEqual(ask("lamp"), { item: "lamp", left: 4 });
  assert.throws(
    () => ask("desk"),
    (error) => error instanceof ServiceError && error.kind === "not_found",
  );
});

test("docs/plugins/web.md: the route with an agent answers, in the caller's own conversation", async (t) => {
  const tokens = { "token-of-ada-0123456789": { id: "ada" }, "token-of-bob-0123456789": { id: "bob" } };
  const manifest = manifestWith(
    { memory: "default" },
    {
      auth: { mode: "authNext", provider: { use: "static", tokens } },
      memory: { default: {} },
      routes: [{ use: "ask" }],
    },
  );
  const service = await startService(t, manifest, { plugins: [pluginFolder(t, Object.fromEntries(EXAMPLES))] });
  const ask = async (who: string) => {
    const headers = { authorization: `Bearer token-of-${who}-0123456789` };
    const reply = await service.post("/ask/tea", { question: "Green tea?" }, headers);
    return [reply.status, ((await reply.json()) as { data?: unknown }).data];
  };
  assert.deepEqual(await ask("ada"), [200, { text: "Green tea?", messages: 2 }]);
  assert.deepEqual(await ask("ada"), [200, { text: "Green tea?", messages: 4 }]);
  assert.deepEqual(
    await ask("bob"),
    [200, { text: "Green tea?", messages: 2 }],
    "bob has a conversation tea of his own",
  );
});

test("docs/plugins/backends.md: the provider streams what it is told to say", async () => {
  const provider = await createInstance(get("provider", "parrot"), { says: "ahoy" }, host);
  const { stream } = await provider.languageModel("any", settingsOf()).doStream({ prompt: [] });
  const types: string[] = [];
  for await (const part of stream) types.push(part.type === "text-delta" ? part.delta : part.type);
  assert.deepEqual(types, ["stream-start", "text-start", "ahoy", "text-end", "finish"]);
});

test("docs/plugins.md: the step computes, and suspends when the discount is large", () => {
  const run = (percent: number, resumeData?: unknown) =>
    get("step", "discount").execute({
      data: { total: 100 },
      config: { percent },
      resumeData,
      suspend: (reason: string) => ({ suspended: reason }),
    } as unknown as StepContext);
  assert.deepEqual(run(10), { total: 90 });
  assert.deepEqual(run(60), { suspended: "More than half off: is that right?" });
  assert.deepEqual(run(60, { approved: true }), { total: 40 });
});

test("docs/plugins/web.md: the auth provider knows its own tokens", async () => {
  const provider = await createInstance(get("auth", "company"), { domain: "example.com" }, host);
  const request = { method: "GET", path: "/", headers: {}, query: {} };
  assert.deepEqual(await provider.verifyToken("ada@example.com", request), { id: "ada@example.com" });
  assert.equal(await provider.verifyToken("ada@elsewhere.com", request), null);
  await assert.rejects(createInstance(get("auth", "company"), {}, host), /domain is required/);
});

test("docs/plugins.md: the origin allows its own and no other", () => {
  const { origin: allowed } = get("origin", "shops");
  assert.equal(allowed("https://a.shops.example"), "https://a.shops.example");
  assert.equal(allowed("https://elsewhere.example"), undefined);
});

test("docs/plugins/backends.md: the embedding gives a vector of its length for each text", async () => {
  const embedding = await createInstance(get("embedding", "letters"), {}, host);
  const vectors = await embedding.embed(["abba", ""], {});
  assert.deepEqual(
    vectors.map((vector) => vector.length),
    [embedding.dimensions, embedding.dimensions],
  );
  assert.deepEqual([...vectors[0]!.slice(0, 3)], [2, 2, 0]);
});

vectorsSuite("of docs/plugins/backends.md", () => createInstance(get("vectors", "table"), {}, host));

test("docs/plugins/backends.md: the store is one that the manifest can name", async () => {
  const namespaces = createNamespaces();
  const store = await openStore("map:anything", { logger: silent, registry, host, folder: "" });
  namespaces.connect(store);
  const keyv = namespaces.keyv("test");
  await keyv.set("a", 1);
  assert.equal(await keyv.get("a"), 1);
  const revision = await store.commit({
    put: [
      ["a/2", "2"],
      ["a/1", "1"],
      ["b", "3"],
    ],
    add: [["n", 2]],
  });
  await assert.rejects(store.commit({ delete: ["b"], expect: [["b", revision + 1]] }), CommitConflict);
  await store.commit({ clear: ["b"], add: [["n", -1]] });
  assert.deepEqual(
    (await store.scan({ prefix: "a/", limit: 9, reverse: true })).map(({ value }) => value),
    ["2", "1"],
  );
  assert.deepEqual(
    (await store.getMany(["b", "n"])).map((row) => row?.value),
    [undefined, "1"],
  );
  await assert.rejects(
    openStore("mop", { logger: silent, registry, host, folder: "" }),
    /there is no store plugin mop/,
  );
});

test("docs/plugins/web.md: the socket greets and echoes", async (t) => {
  const plugins = [pluginFolder(t, Object.fromEntries(EXAMPLES))];
  const service = await startService(t, manifestWith({}, { routes: [{ use: "echo" }] }), { plugins });
  const socket = await openSocket(`${service.url}/ws/echo-json`);
  assert.deepEqual(await socket.next(), { hello: null });
  socket.send({ n: 1 });
  assert.deepEqual(await socket.next(), { n: 1 });
});
