/** `penstock executions`, `reindex` and `vacuum` beside a service that has the SQLite file: it does what they ask for. */
import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { chmod, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { askService } from "../../core/command/ask-service.ts";
import { penstock } from "../support/command-line.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { temporaryFolder } from "../support/storage.ts";
import { startWorkflows } from "../support/workflow-service.ts";

const WORKFLOWS = {
  asking: { steps: [{ id: "ask", andThen: { suspend: { reason: "Yes?" } } }] },
  held: { steps: [{ id: "a", andThen: { use: "probe", with: { hold: true } } }] },
};
const KEY = "console-key-of-the-test";
const ENV = { SERVICE_CONSOLE_ACCESS_KEY: KEY };

/** A service on a SQLite file, and commands with a manifest of the same store in another folder. */
async function served(t: TestContext, rest: object = {}) {
  const cwd = await temporaryFolder(t);
  const file = join(cwd, "test.db");
  const store = `sqlite:${file}`;
  const client = await startWorkflows(t, WORKFLOWS, { store, ...rest }, { env: { ...process.env, ...ENV } });
  const manifest = (port: number) =>
    writeFile(join(cwd, "service.yaml"), JSON.stringify({ name: "T", version: "1.0.0", store, server: { port } }));
  await manifest(client.service.port);
  const run = (words: string, env: Record<string, string> = {}) => penstock(words.split(" "), { cwd, env });
  return { ...client, client, cwd, file, store, run, manifest };
}

const columnsOf = (stdout: string) =>
  stdout
    .trim()
    .split("\n")
    .slice(1)
    .map((line) => line.split(/ {2,}/).slice(0, 2));

test("penstock executions list, end and retry, vacuum: a running service that has the SQLite file does them, at the address of the manifest or of --port", async (t) => {
  const { client, run, manifest } = await served(t);
  await client.execute("asking", {}, { executionId: "waits" });
  client.begin("held", "runs");
  await until(async () => (await client.record("runs"))?.status === "running", "the execution");
  const listed = await run("executions list");
  assert.deepEqual([listed.code, listed.stderr], [0, ""]);
  assert.deepEqual(columnsOf(listed.stdout), [
    ["runs", "running"],
    ["waits", "suspended"],
  ]);

  const retried = [await run("executions retry runs"), await run("executions retry waits")];
  assert.deepEqual(
    retried.map(({ code }) => code),
    [1, 1],
  );
  assert.match(retried[0]!.stderr, /^penstock: the service at http:\S+: execution "runs" runs\n$/);
  assert.match(retried[1]!.stderr, /"waits" is suspended: resume it/);

  await manifest(1);
  const ended = await run(`executions end waits --reason closed --port ${client.service.port}`);
  assert.deepEqual([ended.code, ended.stdout], [0, 'waits: ended with the error "closed"\n']);
  await manifest(client.service.port);
  const state = await client.state("asking", "waits");
  assert.deepEqual([state.status, state.error?.message], ["error", "closed"]);
  const stopped = await run("executions end runs");
  assert.deepEqual([stopped.code, stopped.stdout], [0, "runs: cancelled, as the service was running it\n"]);
  assert.equal((await client.state("held", "runs")).status, "cancelled");
  const unknown = await run("executions end none");
  assert.equal(unknown.code, 1);
  assert.match(unknown.stderr, /there is no execution "none"/);

  const vacuumed = await run("vacuum");
  const said = /^sqlite:\S+: (\d+) bytes, before (\d+)\n$/.exec(vacuumed.stdout);
  assert.deepEqual([vacuumed.code, vacuumed.stderr, said === null], [0, "", false]);
  assert.ok(Number(said![1]) > 0 && Number(said![1]) <= Number(said![2]), vacuumed.stdout);
  const again = await client.execute("asking", {}, { executionId: "later" });
  assert.equal(again.status, "suspended", "the service goes on");
});

test("penstock executions list: a service with auth wants its console key, and says which variable has it", async (t) => {
  const { run } = await served(t, { auth: { mode: "authNext" } });
  const refused = [
    await run("executions list"),
    await run("executions list", { ...ENV, SERVICE_CONSOLE_ACCESS_KEY: "x" }),
  ];
  for (const { code, stderr } of refused) {
    assert.equal(code, 1);
    assert.match(stderr, /: it wants its console key: set SERVICE_CONSOLE_ACCESS_KEY, or --env-file FILE\n/);
    assert.equal(stderr.includes(KEY), false);
  }
  const listed = await run("executions list", ENV);
  assert.deepEqual([listed.code, listed.stderr], [0, ""]);
});

test("penstock executions end: of two services in one folder, the one at the address of the manifest does nothing to the store of the other", async (t) => {
  const first = await served(t);
  const second = await served(t);
  await first.client.execute("asking", {}, { executionId: "waits" });
  await second.client.execute("asking", {}, { executionId: "waits" });
  await second.manifest(first.client.service.port);
  const { code, stderr } = await second.run("executions end waits");
  assert.equal(code, 1);
  assert.match(stderr, /: the store of this service is another one\n/);
  for (const { client } of [first, second]) assert.equal((await client.state("asking", "waits")).status, "suspended");
  // By another name it is the same file.
  const linked = `sqlite:${join(await temporaryFolder(t), "..", second.file.split("/").at(-2)!, "test.db")}`;
  await writeFile(join(second.cwd, "service.yaml"), JSON.stringify({ name: "T", version: "1.0.0", store: linked }));
  const ended = await second.run(`executions end waits --port ${second.client.service.port}`);
  assert.deepEqual([ended.code, ended.stderr], [0, ""]);
});

test("penstock executions list: another program at the address of the service is no success, whatever it answers", async (t) => {
  const { run } = await served(t);
  const answers: [status: number, type: string, body: string, said: RegExp][] = [
    [200, "text/html", "<h1>It works</h1>", /it answered 200, and not as Penstock does/],
    [200, "text/event-stream", "", /it answered 200, and not as Penstock does/],
    [200, "text/event-stream", 'data: {"type":"news"}\n\n', /it answered 200, and not as Penstock does/],
    [200, "text/event-stream", "data: {\n\n", /it answered 200, and not as Penstock does/],
    [200, "text/event-stream", "x".repeat(2 * 1024 * 1024), /its answer has a line of more than 1 MiB/],
    [500, "application/json", "null", /it answered 500, and not as Penstock does/],
    [307, "text/plain", "elsewhere", /it answered 307, and not as Penstock does/],
  ];
  let next = 0;
  const other = createServer((_request, response) => {
    const [status, type, body] = answers[next]!;
    response.writeHead(status, { "content-type": type, ...(status === 307 && { location: "/" }) }).end(body);
  });
  other.listen(0, "127.0.0.1");
  await once(other, "listening");
  t.after(() => other.close());
  const { port } = other.address() as AddressInfo;
  for (const [, , , said] of answers) {
    const { code, stdout, stderr } = await run(`executions list --port ${port}`);
    assert.deepEqual([code, stdout], [1, ""], stderr);
    assert.match(stderr, said);
    next++;
  }
});

test("penstock executions list: while a service ends it is refused and says so; once it has ended, what it left beside the file hinders nobody", async (t) => {
  const { client, run, file } = await served(t);
  client.begin("held", "runs");
  await until(async () => (await client.record("runs"))?.status === "running", "the execution");
  const stopping = client.service.stop();
  const busy = await run("executions list");
  assert.equal(busy.code, 1);
  assert.match(
    busy.stderr,
    /is in use by another process, which holds .*\.lock: .*; no service answers at http:\S+ \(--host, --port\)\n/,
  );
  await client.service.kill();
  await stopping;
  assert.ok((await stat(`${file}.lock`)).isFile(), "the file of the lock stays");
  const listed = await run("executions list");
  assert.deepEqual([listed.code, columnsOf(listed.stdout)], [0, [["runs", "running"]]]);
});

test("penstock reindex: a running service makes its own indexes anew, and finds messages from before and after", async (t) => {
  const memory = { default: { semantic: { embedding: "local/hash" } }, plain: {} };
  const { client, run } = await served(t, { memory, agents: { desk: { model: "demo/echo" } } });
  const { service } = client;
  const say = async (text: string) => {
    const message = { role: "user", parts: [{ type: "text", text }] };
    const body = { userId: "ada", conversationId: "c", messages: [message] };
    const reply = await service.post("/api/memory/save-messages", body);
    assert.equal(reply.status, 200, await reply.text());
  };
  const find = async (text: string) => {
    const query = new URLSearchParams({ searchQuery: text, userId: "ada", threshold: "0.9" });
    const reply = await service.get(`/api/memory/search?${query}`);
    assert.equal(reply.status, 200);
    return ((await reply.json()) as { data: { count: number } }).data.count;
  };
  await service.post("/api/memory/conversations", { userId: "ada", conversationId: "c" });
  await say("the ferry leaves at noon");
  assert.equal(await find("the ferry leaves at noon"), 1);
  const { code, stdout, stderr } = await run("reindex");
  assert.deepEqual([code, stderr], [0, ""]);
  assert.match(stdout, /^memory default: indexing\n(.*\n)*memory default: done, 1 message indexed\n$/);
  await say("the train arrives at midnight");
  assert.deepEqual([await find("the ferry leaves at noon"), await find("the train arrives at midnight")], [1, 1]);

  const none = await served(t);
  const nothing = await none.run("reindex");
  assert.equal(nothing.code, 1);
  assert.match(nothing.stderr, /no memory has semantic search/);
});

test("POST /observability/commands: a second reindex beside one at work is 409 and does nothing, one after it is done", async (t) => {
  const gate = new EventEmitter();
  const entered = once(gate, "entered");
  const opened = once(gate, "open");
  const shared = globalThis as { reindexGate?: unknown };
  // The first call alone: a second one that is let through ends, and the test with it.
  shared.reindexGate = async () => {
    if (gate.emit("entered")) await opened;
  };
  t.after(() => {
    gate.emit("open");
    delete shared.reindexGate;
  });
  const plugin = `export default { kind: "vectors", create: () => ({
    put: async () => {}, delete: async () => {}, search: async () => [], clear: () => globalThis.reindexGate(),
  }) };`;
  const memory = { default: { semantic: { embedding: "local/hash", vectors: "gated" } } };
  const rest = {
    memory,
    agents: { desk: { model: "demo/echo" } },
    store: `sqlite:${join(await temporaryFolder(t), "s.db")}`,
  };
  const plugins = [pluginFolder(t, { "vectors/gated.mjs": plugin })];
  const { service } = await startWorkflows(t, WORKFLOWS, rest, { plugins });
  const reindex = () => service.post("/observability/commands", { command: "reindex" });
  const first = reindex();
  await entered;
  const second = await reindex();
  assert.deepEqual(
    [second.status, ((await second.json()) as { error: string }).error],
    [409, "the indexes are made anew already"],
  );
  gate.emit("open");
  const done = /memory default: done, 0 messages indexed/;
  assert.match(await (await first).text(), done);
  assert.match(await (await reindex()).text(), done);
});

test("penstock executions list: a program that takes the call and says nothing is not waited for without end", async (t) => {
  const cwd = await temporaryFolder(t);
  const file = join(cwd, "test.db");
  await writeFile(file, "");
  for (const begins of [false, true]) {
    const silent = createServer((_request, response) => {
      if (begins) response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
    });
    silent.listen(0, "127.0.0.1");
    await once(silent, "listening");
    const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
    const invocation = { config: "", plugins: [], rest: [], checkOnly: false };
    await assert.rejects(askService(url, "executions list", { file, where: "test" }, invocation, 50), {
      message: `the service at ${url}: it has said nothing for 0.05 s`,
    });
    silent.closeAllConnections();
    silent.close();
  }
});

test("penstock vacuum: a file that its user may not open is refused in a sentence that names it", async (t) => {
  const cwd = await temporaryFolder(t);
  const file = join(cwd, "folder.db");
  await writeFile(join(cwd, "service.yaml"), JSON.stringify({ name: "T", version: "1.0.0", store: `sqlite:${file}` }));
  await writeFile(file, "");
  // The file of the lock cannot be opened, whoever asks: root may read everything.
  await writeFile(`${file}.lock`, "no database, and so no lock".repeat(100));
  await chmod(`${file}.lock`, 0o400);
  const { code, stderr } = await penstock(["vacuum"], { cwd });
  assert.equal(code, 1);
  assert.match(stderr, /^penstock: sqlite:\S+folder\.db cannot be opened: .* \(\S+folder\.db\.lock\)\n$/);
});
