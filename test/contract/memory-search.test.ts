/** Contract, "Memory": search by meaning, with every kind of embedding and index. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { BootError } from "../../core/app/start.ts";
import { createHashEmbedding } from "../../core/memory/embedding/open.ts";
import { PENSTOCK, penstock, type Served, serve } from "../support/command-line.ts";
import { assertShape, callsOf, type MemoryService, said, serveMemory, temporaryFolder } from "../support/memory.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestOptions } from "../support/service.ts";

const memory = (semantic: object) => ({ memory: { default: { semantic }, private: { semantic }, plain: {} } });
const HASH = memory({ embedding: "local/hash" });
const AGENTS = {
  agents: {
    desk: { model: "demo/echo" },
    clerk: { model: "demo/echo", memory: "private" },
    plain: { model: "demo/echo", memory: "plain" },
  },
};

const served = (t: TestContext, rest: object = HASH): Promise<MemoryService> =>
  serveMemory(t, "memory:", { ...AGENTS, ...rest });

async function converse(service: Pick<MemoryService, "data">, id: string, userId: string, texts: string[], rest = {}) {
  await service.data("POST", "/conversations", { conversationId: id, userId, ...rest });
  const messages = texts.map((text, index) => said(text, { id: `${id}${index}` }));
  await service.data("POST", "/save-messages", { userId, conversationId: id, messages, ...rest });
}

const queryOf = (query: object) =>
  new URLSearchParams(Object.entries(query).map(([key, value]): [string, string] => [key, String(value)])).toString();
const search = (service: Pick<MemoryService, "data">, query: object): Promise<Loose> =>
  service.data("GET", `/search?${queryOf(query)}`);
const found = async (service: Pick<MemoryService, "data">, query: object): Promise<string[]> =>
  (await search(service, query)).results.map(({ id }: Loose) => id);

test("GET /api/memory/search with local/use finds a message that says the same in other words", async (t) => {
  const service = await served(t, memory({ embedding: "local/use" }));
  await converse(service, "c", "ada", [
    "I forgot my login credentials and cannot sign in",
    "The weather is nice in Paris today",
    "My cat's name is Whiskers",
  ]);
  const data = await search(service, { searchQuery: "How do I reset my password?", threshold: 0.5 });
  assertShape("SearchResults", data);
  assert.equal(data.count, 1);
  assert.equal(data.query, "How do I reset my password?");
  const [{ id, score, message, conversationId }] = data.results;
  assert.deepEqual(
    [id, conversationId, message.parts[0].text],
    ["c0", "c", "I forgot my login credentials and cannot sign in"],
  );
  assert.ok(score > 0.5 && score < 1, `${score}`);
  assert.deepEqual(await found(service, { searchQuery: "What is my pet called?", threshold: 0.5 }), ["c2"]);
});

test("GET /api/memory/search finds what was saved just before, best first, with the memory's threshold and limit 10 by default", async (t) => {
  const service = await served(t);
  const words = ["anchor", "buoy", "cable", "deck", "engine"];
  const texts = Array.from({ length: 12 }, () => words.join(" "));
  await converse(service, "c", "ada", [...texts, "anchor buoy", "hello there"]);
  const data = await search(service, { searchQuery: words.join(" ") });
  assert.equal(data.count, 10);
  assert.ok(data.results.every(({ score }: Loose) => score > 0.999 && score <= 1));
  const all = await search(service, { searchQuery: words.join(" "), limit: 100, threshold: 0.3 });
  assert.equal(all.count, 13);
  assert.equal(all.results.at(-1).id, "c12");
  const scores: number[] = all.results.map(({ score }: Loose) => score);
  assert.deepEqual(
    scores,
    [...scores].sort((a, b) => b - a),
  );
  assert.ok(scores.at(-1)! < 0.7);
  assert.equal((await search(service, { searchQuery: words.join(" "), limit: 3 })).count, 3);
});

test("GET /api/memory/search keeps to the conversation, the user and the memory of the agent that are asked for", async (t) => {
  const service = await served(t);
  await converse(service, "a1-", "ada", ["the ferry leaves at noon"]);
  await converse(service, "a2-", "ada", ["the ferry leaves at noon"]);
  await converse(service, "b-", "bob", ["the ferry leaves at noon"]);
  await converse(service, "p-", "ada", ["the ferry leaves at noon"], { agentId: "clerk" });
  const searchQuery = "the ferry leaves at noon";
  assert.deepEqual((await found(service, { searchQuery })).sort(), ["a1-0", "a2-0", "b-0"]);
  assert.deepEqual((await found(service, { searchQuery, userId: "ada" })).sort(), ["a1-0", "a2-0"]);
  assert.deepEqual(await found(service, { searchQuery, conversationId: "a2-" }), ["a2-0"]);
  assert.deepEqual(await found(service, { searchQuery, userId: "bob", conversationId: "b-" }), ["b-0"]);
  assert.deepEqual(await found(service, { searchQuery, agentId: "clerk" }), ["p-0"]);
  assert.deepEqual(await found(service, { searchQuery, userId: "nobody" }), []);
});

test("GET /api/memory/search finds model messages too, and neither reasoning nor tool results nor empty ones", async (t) => {
  const service = await served(t);
  await service.data("POST", "/conversations", { conversationId: "c", userId: "ada" });
  const text = "the ferry leaves at noon";
  const messages = [
    { id: "m0", role: "user", content: text },
    { id: "m1", role: "assistant", content: [{ type: "text", text }] },
    { id: "m2", role: "assistant", parts: [{ type: "reasoning", text }] },
    {
      id: "m3",
      role: "tool",
      content: [{ type: "tool-result", toolCallId: "t", toolName: "x", output: { type: "text", value: text } }],
    },
    { id: "m4", role: "user", content: "" },
  ];
  await service.data("POST", "/save-messages", { userId: "ada", conversationId: "c", messages });
  assert.deepEqual((await found(service, { searchQuery: text })).sort(), ["m0", "m1"]);
});

test("GET /api/memory/search follows what happens to messages: replaced, deleted, cloned, with their conversation", async (t) => {
  const service = await served(t);
  await converse(service, "c", "ada", ["the ferry leaves at noon", "bread and butter"]);
  const ferry = { searchQuery: "the ferry leaves at noon" };
  assert.deepEqual(await found(service, ferry), ["c0"]);
  const messages = [said("nothing of interest", { id: "c0" })];
  await service.data("POST", "/save-messages", { userId: "ada", conversationId: "c", messages });
  assert.deepEqual(await found(service, ferry), []);
  assert.deepEqual(await found(service, { searchQuery: "bread and butter" }), ["c1"]);
  const { conversation } = await service.data("POST", "/conversations/c/clone", { newConversationId: "d" });
  assert.equal(conversation.id, "d");
  const both = (await search(service, { searchQuery: "bread and butter" })).results;
  assert.deepEqual(both.map(({ conversationId }: Loose) => conversationId).sort(), ["c", "d"]);
  await service.data("POST", "/messages/delete", { conversationId: "c", userId: "ada", messageIds: ["c1"] });
  const left = (await search(service, { searchQuery: "bread and butter" })).results;
  assert.deepEqual(
    left.map(({ conversationId }: Loose) => conversationId),
    ["d"],
  );
  await service.data("DELETE", "/conversations/d");
  assert.deepEqual(await found(service, { searchQuery: "bread and butter" }), []);
});

test("GET /api/memory/search is 400 without searchQuery, with a bad limit or threshold, and for a memory without semantic", async (t) => {
  const service = await served(t);
  for (const [query, expected] of [
    ["", /searchQuery/],
    ["?searchQuery=", /searchQuery/],
    ["?searchQuery=x&limit=abc", /limit/],
    ["?searchQuery=x&limit=101", /limit/],
    ["?searchQuery=x&threshold=2", /threshold/],
    ["?searchQuery=x&threshold=high", /threshold/],
    ["?searchQuery=x&agentId=plain", /semantic|embedding/],
  ] as const) {
    const { status, error, code } = await service.call("GET", `/search${query}`);
    assert.deepEqual([status, code], [400, "invalid_input"], query);
    assert.match(error, expected);
  }
  assert.equal((await service.call("GET", "/search?searchQuery=x&conversationId=none")).status, 404);
});

/** An embedding model over the wire. `fails` gives the status with which it answers instead. */
async function servedModel(t: TestContext, fails: (input: string[]) => number | undefined) {
  const hash = createHashEmbedding();
  const asked: Loose[] = [];
  const upstream = createServer(async (request, reply) => {
    const body = JSON.parse(await textOf(request));
    asked.push({ url: request.url, ...body });
    reply.setHeader("content-type", "application/json");
    const status = fails(body.input);
    if (status !== undefined) {
      reply.writeHead(status).end(JSON.stringify({ error: { message: "out of order" } }));
      return;
    }
    const vectors = await hash.embed(body.input);
    const data = vectors.map((vector, index) => ({ object: "embedding", index, embedding: [...vector] }));
    reply.end(
      JSON.stringify({ object: "list", model: body.model, data, usage: { prompt_tokens: 1, total_tokens: 1 } }),
    );
  });
  await new Promise<void>((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  t.after(() => upstream.close());
  const { port } = upstream.address() as AddressInfo;
  const up = { use: "openai-compatible", baseURL: `http://127.0.0.1:${port}/v1`, apiKey: "key", retries: 0 };
  const providers = { demo: { use: "scripted" }, up };
  return { asked, service: await served(t, { providers, ...memory({ embedding: "up/embed-small" }) }) };
}

test("GET /api/memory/search: an embedding model of an openai-compatible provider makes the vectors", async (t) => {
  let failing = false;
  const { asked, service } = await servedModel(t, () => (failing ? 500 : undefined));
  await converse(service, "c", "ada", ["the ferry leaves at noon", "bread and butter"]);
  assert.deepEqual(await found(service, { searchQuery: "the ferry leaves at noon" }), ["c0"]);
  assert.ok(asked.every(({ url, model }) => url === "/v1/embeddings" && model === "embed-small"));
  failing = true;
  const { status, error } = await service.call("GET", "/search?searchQuery=ferry");
  assert.equal(status, 503);
  assert.doesNotMatch(error, /out of order/);
});

test("GET /api/memory/search: when the model fails amid a batch with a refused text, what it answered before is found, and not sent again", async (t) => {
  const texts = ["refuse this", "bread and butter", "the ferry leaves at noon", "wood and nails"];
  const [refused, bread, ferry, wood] = texts as [string, string, string, string];
  let failed = false;
  const { asked, service } = await servedModel(t, (input) => {
    if (input.includes(refused)) return 400;
    if (!input.includes(ferry) || failed) return;
    failed = true;
    return 503;
  });
  await converse(service, "c", "ada", texts);
  const first = await found(service, { searchQuery: "butter", threshold: 0.3 });
  const deadline = performance.now() + 20_000;
  while ((await found(service, { searchQuery: "ferry noon", threshold: 0.3 })).length === 0)
    assert.ok(performance.now() < deadline, "the ferry is not found");
  const sent = asked.map(({ input }) => input).filter(([text]) => texts.includes(text));
  const half = [ferry, wood];
  assert.deepEqual(sent, [texts, [refused, bread], [refused], [bread], half, half]);
  assert.deepEqual(first, ["c1"]);
});

async function textOf(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const piece of request.setEncoding("utf8")) text += piece;
  return text;
}

const PLUGIN_EMBEDDING = `import { defineEmbedding } from "#plugin";
const count = (text: string) => {
  const vector = new Float32Array(26);
  for (const letter of text.toLowerCase()) if (letter >= "a" && letter <= "z") vector[letter.charCodeAt(0) - 97]! += 1;
  return vector;
};
export default defineEmbedding({ create: () => ({ dimensions: 26, embed: async (texts) => texts.map(count) }) });
`;
const PLUGIN_VECTORS = `import { defineVectors } from "#plugin";
const dot = (a: Float32Array, b: Float32Array) => a.reduce((sum, number, index) => sum + number * b[index]!, 0);
export default defineVectors({
  config: { type: "object", properties: { label: { type: "string" } }, required: ["label"], additionalProperties: false },
  create: ({ label }, host) => {
    const rows = new Map<string, { owner: string; conversation: string; message: string; vector: Float32Array }>();
    host.logger.info("vectors of " + host.name + " in " + label);
    return {
      async put(entries) {
        for (const entry of entries) rows.set(JSON.stringify([entry.owner, entry.conversation, entry.message]), entry);
      },
      async delete(places) {
        for (const { owner, conversation, message } of places)
          for (const [key, row] of rows)
            if (row.owner === owner && row.conversation === conversation && (message ?? row.message) === row.message) rows.delete(key);
      },
      async search({ vector, owner, conversation, limit, threshold }) {
        return [...rows.values()]
          .filter((row) => (owner ?? row.owner) === row.owner && (conversation ?? row.conversation) === row.conversation)
          .map(({ vector: other, ...place }) => ({ ...place, score: dot(vector, other) }))
          .filter(({ score }) => score >= threshold)
          .sort((a, b) => b.score - a.score)
          .slice(0, limit);
      },
      async clear() {
        rows.clear();
      },
    };
  },
});
`;

async function files(t: TestContext, contents: Record<string, string>): Promise<string> {
  const folder = await temporaryFolder(t);
  for (const [name, text] of Object.entries(contents)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text);
  }
  return folder;
}

test("GET /api/memory/search: plugins of kind embedding and vectors serve a memory", async (t) => {
  const folder = await files(t, { "embeddings/letters.ts": PLUGIN_EMBEDDING, "vectors/here.ts": PLUGIN_VECTORS });
  const semantic = { embedding: "letters", vectors: { use: "here", label: "this process" } };
  const options: TestOptions = { plugins: [folder] };
  const started = await startService(t, manifestWith({}, { ...AGENTS, ...memory(semantic) }), options);
  const service = callsOf(started.url);
  assert.ok(started.log.some(({ msg }) => msg === "vectors of default in this process"));
  await converse(service, "c", "ada", ["aaaa", "bbbb", "abab"]);
  assert.deepEqual(await found(service, { searchQuery: "aa" }), ["c0", "c2"]);
  assert.deepEqual(await found(service, { searchQuery: "b", userId: "ada", limit: 1 }), ["c1"]);
  await service.data("POST", "/messages/delete", { conversationId: "c", userId: "ada", messageIds: ["c0"] });
  assert.deepEqual(await found(service, { searchQuery: "aa" }), ["c2"]);
  await service.data("DELETE", "/conversations/c");
  assert.deepEqual(await found(service, { searchQuery: "aa" }), []);
});

test("GET /api/memory/search: a plugin that is no index of vectors, an embedding that is not there, or pgvector that is required without PostgreSQL, does not boot", async (t) => {
  const broken =
    'import { defineVectors } from "#plugin";\nexport default defineVectors({ create: () => ({ put() {} }) as never });\n';
  const folder = await files(t, { "vectors/broken.ts": broken });
  const messagesOf = async (semantic: object) => {
    const manifest = manifestWith({}, { ...AGENTS, memory: { default: { semantic }, private: {}, plain: {} } });
    const error = await startService(t, manifest, { plugins: [folder] }).then(
      () => assert.fail("it booted"),
      (thrown) => thrown,
    );
    assert.ok(error instanceof BootError);
    return error.booted.issues
      .filter(({ severity }) => severity === "error")
      .map(({ path, message }) => `${path} ${message}`);
  };
  const [vectors, ...rest] = await messagesOf({ embedding: "local/hash", vectors: "broken" });
  assert.match(
    vectors!,
    /^memory\.default\.semantic\.vectors .*delete is missing; search is missing; clear is missing/,
  );
  assert.deepEqual(rest, []);
  assert.deepEqual(await messagesOf({ embedding: "local/hash", pgvector: "required" }), [
    "memory.default.semantic.pgvector cannot be required: the store is not PostgreSQL",
  ]);
  assert.deepEqual(await messagesOf({ embedding: "local/hash", vectors: "broken", pgvector: "required" }), [
    "memory.default.semantic.pgvector cannot be required of the plugin broken, but of exact alone",
  ]);
  const [unknown] = await messagesOf({ embedding: "local/us" });
  assert.match(unknown!, /local\/us.*did you mean "?local\/use/);
  assert.equal((await messagesOf({ embedding: "nobody/model" })).length, 1);
});

const MANIFEST = (semantic: string) => `name: Search
store: sqlite:data/search.db
logs: { level: warn }
server: { port: 0 }
providers: { demo: { use: scripted } }
agents: { desk: { model: demo/echo } }
memory: { default: ${semantic} }
`;
const start = (t: TestContext, cwd: string): Promise<Served> =>
  serve(t, [process.execPath, PENSTOCK, "serve"], { cwd });

test("GET /api/memory/search: another embedding does not boot on an old index; penstock reindex makes it anew, and it serves", async (t) => {
  const cwd = await files(t, { "service.yaml": MANIFEST("{ semantic: { embedding: local/hash } }") });
  const first = await start(t, cwd);
  const calls = callsOf(first.url);
  await converse(calls, "c", "ada", [
    "I forgot my login credentials and cannot sign in",
    "The weather is nice in Paris today",
  ]);
  await converse(calls, "gone", "ada", ["How do I reset my password?"]);
  await calls.data("DELETE", "/conversations/gone");
  assert.deepEqual(await found(calls, { searchQuery: "How do I reset my password?", threshold: 0.5 }), []);
  await first.interrupt();

  await writeFile(join(cwd, "service.yaml"), MANIFEST("{ semantic: { embedding: local/use } }"));
  const refused = await penstock(["serve"], { cwd });
  assert.equal(refused.code, 1);
  assert.match(
    refused.stderr,
    /service\.yaml:7:\d+ {2}memory\.default\.semantic\.embedding: the index was made with local\/hash \(512 dimensions\) in exact, and the manifest says local\/use .*: run penstock reindex/,
  );
  const done = await penstock(["reindex"], { cwd });
  assert.deepEqual([done.code, done.stderr], [0, ""]);
  assert.match(done.stdout, /^memory default: indexing\n(.*\n)*memory default: done, 2 messages indexed\n$/);

  const second = await start(t, cwd);
  const after = callsOf(second.url);
  const hits = await found(after, { searchQuery: "How do I reset my password?", threshold: 0.5 }).catch(String);
  assert.deepEqual(hits, ["c0"], second.stdout() + second.stderr());
  await second.interrupt();

  const none = await files(t, { "service.yaml": MANIFEST("{}") });
  const nothing = await penstock(["reindex"], { cwd: none });
  assert.equal(nothing.code, 1);
  assert.match(nothing.stderr, /no memory has semantic search/);
});

test("GET /api/memory/search: an acknowledged message is found after SIGKILL, whether its text was embedded by then or not", async (t) => {
  const cwd = await files(t, { "service.yaml": MANIFEST("{ semantic: { embedding: local/use } }") });
  const first = await start(t, cwd);
  const calls = callsOf(first.url);
  await calls.data("POST", "/conversations", { conversationId: "c", userId: "ada" });
  const messages = Array.from({ length: 100 }, (_, count) =>
    said(`Parcel number ${count} has arrived`, { id: `m${count}` }),
  );
  await calls.data("POST", "/save-messages", { userId: "ada", conversationId: "c", messages });
  first.child.kill("SIGKILL");
  await first.interrupt("SIGKILL");

  const second = await start(t, cwd);
  const after = callsOf(second.url);
  const deadline = performance.now() + 60_000;
  while ((await found(after, { searchQuery: "parcels that came", threshold: 0, limit: 100 })).length < 100) {
    assert.ok(performance.now() < deadline, "not all are found");
  }
  assert.equal(new Set(await found(after, { searchQuery: "parcels", threshold: 0, limit: 100 })).size, 100);
});
