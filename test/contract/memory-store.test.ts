/** The store under the memory API: what a restart keeps, who may open it, and what a client is told while it cannot work. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import KeyvSqlite from "@keyv/sqlite";
import { start as boot } from "../../core/app/start.ts";
import { PENSTOCK, penstock, serve } from "../support/command-line.ts";
import { callsOf, MEMORIES, said, serveMemory, temporaryFolder } from "../support/memory.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith } from "../support/service.ts";

const FILE = "data/penstock.db";

/** A folder with a manifest whose store is a file in it. */
async function folderWith(t: TestContext, rest: object = {}): Promise<string> {
  const folder = await temporaryFolder(t);
  const manifest = manifestWith({}, { ...MEMORIES, store: `sqlite:${FILE}`, ...rest });
  await writeFile(join(folder, "service.yaml"), JSON.stringify(manifest, null, 2));
  return folder;
}

const start = (t: TestContext, folder: string) =>
  serve(t, [process.execPath, PENSTOCK, "--port", "0"], { cwd: folder });

/** Everything that the memory API gives of what the tests below save. */
async function everything(url: string): Promise<Loose> {
  const { data } = callsOf(url);
  const paths = [
    "/conversations",
    "/conversations?userId=ada&orderBy=title&orderDirection=asc",
    "/conversations/c",
    "/conversations/c/messages",
    "/conversations/c/working-memory",
    "/conversations/copy/messages",
  ];
  return Promise.all(paths.map((path) => data("GET", path)));
}

test("what was acknowledged is there after SIGKILL and a new start on the same file: conversations, messages, working memory; the file is relative to the manifest, not to the working directory", async (t) => {
  const folder = await folderWith(t);
  const elsewhere = await temporaryFolder(t);
  const config = join(folder, "service.yaml");
  const first = await serve(t, [process.execPath, PENSTOCK, "--port", "0", "--config", config], { cwd: elsewhere });
  const { data } = callsOf(first.url);
  await data("POST", "/conversations", { userId: "ada", conversationId: "c", title: "T", metadata: { a: [1] } });
  await data("POST", "/conversations", { userId: "bob", conversationId: "gone" });
  const messages = [said("one", { id: "1" }), { message: { role: "assistant", content: "two" } }];
  await data("POST", "/save-messages", { userId: "ada", conversationId: "c", messages });
  await data("POST", "/conversations/c/working-memory", { content: "Note" });
  await data("POST", "/conversations/c/clone", { newConversationId: "copy" });
  await data("DELETE", "/conversations/gone");
  const before = await everything(first.url);
  await first.interrupt("SIGKILL");
  assert.ok(existsSync(join(folder, FILE)));
  assert.deepEqual(await readdir(elsewhere), []);
  const second = await start(t, folder);
  assert.deepEqual(await everything(second.url), before);
  const again = callsOf(second.url);
  assert.equal((await again.call("GET", "/conversations/gone")).status, 404);
  await again.data("POST", "/save-messages", { userId: "ada", conversationId: "c", messages: [said("three")] });
  const page = await again.data("GET", "/conversations/c/messages");
  assert.deepEqual(
    page.messages.map(({ parts, content }: Loose) => content ?? parts[0].text),
    ["one", "two", "three"],
  );
  assert.equal(await second.interrupt("SIGTERM"), 0);
});

test("with memory: a restart forgets everything, and no file is written", async (t) => {
  const folder = await folderWith(t, { store: "memory:" });
  const options = { config: join(folder, "service.yaml"), port: 0, env: {}, log: { write: () => undefined } };
  const first = await boot(options);
  await callsOf(first.url).data("POST", "/conversations", { userId: "ada" });
  await first.stop();
  const second = await boot(options);
  t.after(() => second.kill());
  assert.equal((await callsOf(second.url).data("GET", "/conversations")).total, 0);
  assert.deepEqual(await readdir(folder), ["service.yaml"]);
});

test("check, routes and explain open no store, and a manifest with errors does not either: no file is written", async (t) => {
  const folder = await folderWith(t);
  for (const args of [["check"], ["routes"], ["explain", "store"]]) {
    const { code, stderr } = await penstock(args, { cwd: folder });
    assert.deepEqual([code, stderr], [0, ""], args[0]);
  }
  const wrong = await folderWith(t, { tools: { mine: { use: "nowhere" } } });
  const { code, stderr } = await penstock(["serve", "--port", "0"], { cwd: wrong });
  assert.equal(code, 1, stderr);
  assert.deepEqual(await readdir(folder), ["service.yaml"]);
  assert.deepEqual(await readdir(wrong), ["service.yaml"]);
});

test("a second process on the same file is refused at store in the manifest; the first goes on, and after it the second can start", async (t) => {
  const folder = await folderWith(t);
  const first = await start(t, folder);
  const refused = await penstock(["serve", "--port", "0"], { cwd: folder });
  assert.equal(refused.code, 1);
  assert.match(
    refused.stderr,
    /^service\.yaml:\d+:\d+ {2}store: sqlite:data\/penstock\.db is in use by another process/,
  );
  assert.equal(refused.stderr.trimEnd().split("\n").length, 1, refused.stderr);
  await callsOf(first.url).data("POST", "/conversations", { userId: "ada" });
  await first.interrupt("SIGTERM");
  const second = await start(t, folder);
  assert.equal((await callsOf(second.url).data("GET", "/conversations")).total, 1);
});

test("a store that is no database, and a folder that cannot be made, are one error at store in the manifest", async (t) => {
  const folder = await temporaryFolder(t);
  const file = join(folder, "broken.db");
  await writeFile(file, "no database".repeat(1000));
  for (const [store, message] of [
    [`sqlite:${file}`, /damaged, or not a SQLite database/],
    [`sqlite:${file}/x.db`, /x\.db/],
  ] as const)
    await assert.rejects(serveMemory(t, store), ({ booted: { issues } }: Loose) => {
      assert.deepEqual(
        issues.map(({ path }: Loose) => path),
        ["store"],
      );
      assert.match(issues[0].message, message);
      assert.doesNotMatch(issues[0].message, /\n/);
      return true;
    });
});

test("while the file is locked writes answer 503 with Retry-After and /readyz says why; /healthz, reads and agents go on; then it works by itself", async (t) => {
  const file = join(await temporaryFolder(t), "test.db");
  const service = await serveMemory(t, `sqlite:${file}`);
  await service.data("POST", "/conversations", { userId: "ada", conversationId: "c" });
  assert.deepEqual(await (await service.get("/readyz")).json(), { status: "ready" });
  const other = new KeyvSqlite({ uri: file, busyTimeout: 0 });
  t.after(() => other.close().catch(() => {}));
  await other.query("BEGIN IMMEDIATE");
  const refused = await service.post("/api/memory/conversations", { userId: "ada", conversationId: "d" });
  assert.equal(refused.status, 503);
  assert.equal(refused.headers.get("x-error-code"), "unavailable");
  assert.match(refused.headers.get("retry-after") ?? "", /^\d+$/);
  assert.match(((await refused.json()) as Loose).error, /locked by another process/);
  const ready = await service.get("/readyz");
  assert.equal(ready.status, 503);
  const { status, reason } = (await ready.json()) as Loose;
  assert.equal(status, "unavailable");
  assert.match(reason, /locked by another process/);
  assert.equal((await service.get("/healthz")).status, 200);
  assert.equal((await service.data("GET", "/conversations")).total, 1);
  assert.equal((await service.post("/agents/echo/text", { input: "Hi" })).status, 200);
  await other.query("ROLLBACK");
  for (let tries = 0; (await service.get("/readyz")).status !== 200; tries++) {
    assert.ok(tries < 6_000, "ready again");
    await sleep(50);
  }
  await service.data("POST", "/conversations", { userId: "ada", conversationId: "d" });
  assert.equal((await service.data("GET", "/conversations")).total, 2);
  const lines = service.log.filter(({ msg }) => /cannot write|can write again/.test(String(msg)));
  assert.equal(lines.length, 2, "one line when it stops, one when it works again");
});

test("SIGTERM during saves: what was acknowledged before the end is there after it", async (t) => {
  const folder = await folderWith(t);
  const first = await start(t, folder);
  const { data, call } = callsOf(first.url);
  await data("POST", "/conversations", { userId: "ada", conversationId: "c" });
  const saved: string[] = [];
  const writer = async (name: string) => {
    for (let index = 0; ; index++) {
      const id = `${name}-${index}`;
      try {
        const body = { userId: "ada", conversationId: "c", messages: [said("x", { id })] };
        if ((await call("POST", "/save-messages", body)).status !== 200) return;
      } catch {
        return;
      }
      saved.push(id);
    }
  };
  const writers = ["a", "b", "c", "d"].map(writer);
  for (let tries = 0; saved.length < 20 && tries < 6_000; tries++) await sleep(10);
  assert.equal(await first.interrupt("SIGTERM"), 0);
  await Promise.all(writers);
  assert.ok(saved.length > 0);
  const second = await start(t, folder);
  const { messages } = await callsOf(second.url).data("GET", "/conversations/c/messages?limit=1000");
  const ids = new Set(messages.map(({ id }: Loose) => id));
  const newest = saved.slice(-900);
  assert.deepEqual(
    newest.filter((id) => !ids.has(id)),
    [],
  );
});
