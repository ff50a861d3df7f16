/** A SQLite file whose pages were overwritten: who says so, and what still works. */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import { PENSTOCK, run } from "../support/command-line.ts";
import { manifestWith, startService } from "../support/service.ts";
import { damagePages, recordingLogger, temporaryFolder } from "../support/storage.ts";

const silent = pino({ level: "silent" });
const DAMAGED = "the file is damaged, or not a SQLite database";
const keyOf = (index: number) => `k/${String(index).padStart(5, "0")}`;
const COUNT = 4_000;

/** About 2 MB of rows, in a file that is closed. */
async function filled(t: TestContext): Promise<string> {
  const file = join(await temporaryFolder(t), "test.db");
  const store = await openSqliteStore({ file, logger: silent });
  const rows = Array.from({ length: COUNT }, (_, index): [string, string] => [keyOf(index), `"${"x".repeat(500)}"`]);
  await store.commit({ put: rows });
  await store.close();
  return file;
}

test("store sqlite: a file with overwritten pages is refused when it is opened, in one line that says what to do", async (t) => {
  const file = await filled(t);
  await damagePages(file, 200, 3);
  await assert.rejects(openSqliteStore({ file, where: "sqlite:test.db", logger: silent }), (error: Error) => {
    assert.match(
      error.message,
      /^sqlite:test\.db is damaged \(.*page 20\d.*\): bring back a backup with penstock restore$/,
    );
    return true;
  });
  // The refusal has let go of the file.
  const store = await openSqliteStore({ file, logger: silent, checkUpTo: 0 });
  await store.close();
});

test("store sqlite: a statement that meets damage ends the writing until a restart, while other rows can be read", async (t) => {
  const file = await filled(t);
  const { logger, lines } = recordingLogger();
  await damagePages(file, 200, 3);
  const store = await openSqliteStore({ file, where: "sqlite:test.db", logger, checkUpTo: 0 });
  t.after(() => store.close());
  assert.equal(await store.problem(), null, "too large to be read whole: nothing has met the damage yet");
  const walk = async () => {
    for (let index = 0; index < COUNT; index++) await store.get(keyOf(index));
  };
  await assert.rejects(walk(), { kind: "unavailable", message: `storage is unavailable: ${DAMAGED}` });
  assert.equal((await store.get(keyOf(0)))?.key, keyOf(0));
  assert.equal((await store.get(keyOf(COUNT - 1)))?.key, keyOf(COUNT - 1));
  assert.equal(await store.problem(), DAMAGED);
  await assert.rejects(store.commit({ put: [["a", "1"]] }), { kind: "unavailable" });
  assert.equal(await store.problem(), DAMAGED);
  assert.deepEqual(
    lines.filter((line) => /cannot read|can read again/.test(line)).length,
    1,
    "one line, and none that takes it back",
  );
});

test("penstock serve: a damaged file of SQLite is one line on standard error and exit 1", async (t) => {
  const file = await filled(t);
  await damagePages(file, 200, 3);
  const cwd = await mkdtemp(join(tmpdir(), "penstock-damage-"));
  t.after(() => rm(cwd, { recursive: true, force: true }));
  await writeFile(join(cwd, "service.yaml"), JSON.stringify({ ...manifestWith(), store: `sqlite:${file}` }));
  const { code, stdout, stderr } = await run(process.execPath, [PENSTOCK, "serve", "--port", "0"], { cwd });
  assert.equal(code, 1);
  assert.doesNotMatch(stdout, /listens on/);
  assert.match(stderr, /^service\.yaml:1:\d+ {2}store: sqlite:.*test\.db is damaged \(.*\): bring back .*\n$/);
});

test("GET /readyz: 503 once a request has met a page that was overwritten while the service ran", async (t) => {
  const file = join(await temporaryFolder(t), "test.db");
  const manifest = { ...manifestWith({ memory: "default" }, { memory: { default: {} } }), store: `sqlite:${file}` };
  const first = await startService(t, manifest);
  const base = "/api/memory/conversations";
  const ids = Array.from({ length: 40 }, (_, index) => `c${index}`);
  for (const conversationId of ids) {
    const body = { userId: "ada", conversationId, metadata: { text: "x".repeat(20_000) } };
    assert.equal((await first.post(base, body)).status, 201);
  }
  await first.stop();
  const service = await startService(t, manifest);
  assert.equal((await service.get("/readyz")).status, 200);
  // In the middle: the first row can still be read.
  await damagePages(file, 80, 80);
  const statuses = await Promise.all(ids.map(async (id) => (await service.get(`${base}/${id}`)).status));
  assert.ok(statuses.includes(503), statuses.join(" "));
  const ready = await service.get("/readyz");
  assert.equal(ready.status, 503);
  assert.match(await ready.text(), /damaged/);
});
