/** `penstock export` and `penstock import`: all rows of a store, from any engine to any other. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Readable } from "node:stream";
import { after, type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { pino } from "pino";
import { everyRow } from "../../core/storage/all-keys.ts";
import { requireIdle } from "../../core/storage/idle.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { type ExportEnd, exportHeader, exportRows, importRows, requireNoImport } from "../../core/storage/row-lines.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import type { Row, Store } from "../../core/storage/store.ts";
import { PENSTOCK, penstock } from "../support/command-line.ts";
import { NO_POSTGRES, type PostgresServer, sharedPostgres } from "../support/postgres.ts";
import { manifestWith, startService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
const db = server as PostgresServer;
after(() => server?.close());

const logger = pino({ level: "silent" });

async function sqlite(t: TestContext): Promise<Store & { file: string }> {
  const file = join(await temporaryFolder(t), "test.db");
  const store = await openSqliteStore({ file, logger });
  t.after(() => store.close());
  return Object.assign(store, { file });
}

async function postgres(t: TestContext): Promise<Store> {
  const store = await openPostgresStore(await db.createDatabase(), { logger });
  t.after(() => store.close());
  return store;
}

async function exported(store: Store): Promise<{ text: string; end: ExportEnd; pieces: string[] }> {
  let end: ExportEnd | undefined;
  const pieces: string[] = [];
  for await (const piece of exportRows(store, exportHeader(store.kind, "Test"), (last) => {
    end = last;
  }))
    pieces.push(piece);
  return { text: pieces.join(""), end: end!, pieces };
}

const bytes = (text: string): AsyncIterable<Uint8Array> => Readable.from([Buffer.from(text)]);
/** In small pieces, which cut lines and characters apart. */
async function* crumbs(text: string, size: number): AsyncGenerator<Uint8Array> {
  const all = Buffer.from(text);
  for (let from = 0; from < all.length; from += size) yield all.subarray(from, from + size);
}

async function contentOf(store: Store): Promise<[string, string][]> {
  const rows: [string, string][] = [];
  for await (const { key, value } of everyRow(store)) rows.push([key, value]);
  return rows;
}

/** Rows of every sort: odd keys and texts, counters, large values, many of them. */
async function fill(store: Store): Promise<void> {
  await store.commit({
    put: [
      ["c/000000001/n", '[{"id":"a","title":"Größe \\ud83d\\ude00 \\u0000"},2]'],
      ["c/000000001/m/1/1", JSON.stringify({ text: 'quote " back \\ line \n separator \u2028 smile 😀' })],
      ["h/agent/1/run", "[]"],
      ["~/last", '"~"'],
      ["!", '"first"'],
      ["s/conversation", "4097"],
      ["kv/name/large", JSON.stringify("ü".repeat(700_000))],
      ["xo/000000001", '["gone-process",1,[]]'],
    ],
    add: [
      ["n/default/u/ada", 12],
      ["n/h/agent", -3],
      ["n/t/size", 9_007_199_254_740_000],
    ],
  });
  await store.commit({ put: [["xp/this-process", String(Date.now())]] });
  for (let part = 0; part < 3; part++) {
    const rows = Array.from({ length: 1_000 }, (_, at): [string, string] => [
      `u/default/${String(part * 1_000 + at).padStart(6, "0")}`,
      JSON.stringify("x".repeat(at % 50)),
    ]);
    await store.commit({ put: rows });
  }
}

test("penstock export and import: sqlite to postgres to sqlite gives the same rows and the same file, and counters still count", {
  skip,
}, async (t) => {
  const [first, second, third] = [await sqlite(t), await postgres(t), await sqlite(t)];
  await fill(first);
  const before = (await contentOf(first)).filter(([key]) => !key.startsWith("xp/"));
  const out = await exported(first);
  assert.deepEqual(await importRows(second, crumbs(out.text, 1_000)), out.end);
  assert.deepEqual(await contentOf(second), before);
  const back = await exported(second);
  await importRows(third, crumbs(back.text, 65_537));
  assert.deepEqual(await contentOf(third), before);
  const again = await exported(third);
  const rowsOf = (text: string) => text.slice(text.indexOf("\n"), text.lastIndexOf('{"rows"'));
  assert.equal(rowsOf(back.text), rowsOf(out.text));
  assert.equal(rowsOf(again.text), rowsOf(out.text));
  assert.equal(again.end.rows, before.length);
  for (const store of [second, third]) {
    await store.commit({ add: [["n/default/u/ada", -2]], put: [["s/conversation", "8193"]] });
    assert.equal((await store.get("n/default/u/ada"))?.value, "10");
    assert.deepEqual([await requireNoImport(store), await requireIdle(store)], [undefined, undefined]);
  }
});

test("penstock export: the first line says what it is, the last one counts the rows by what they are", async (t) => {
  const store = await sqlite(t);
  await fill(store);
  const { text, end } = await exported(store);
  const [first, ...rest] = text.split("\n");
  const { exportedAt, ...header } = JSON.parse(first!);
  assert.deepEqual(header, { penstock: "export", format: 1, schema: 2, engine: "sqlite", service: "Test" });
  assert.ok(Math.abs(Date.parse(exportedAt) - Date.now()) < 3_600_000);
  assert.deepEqual(JSON.parse(rest.at(-2)!), end);
  assert.equal(rest.at(-1), "");
  assert.deepEqual(end.kinds, {
    "other rows": 3_006,
    messages: 1,
    conversations: 1,
    runs: 1,
    "entries of plugins": 1,
    executions: 1,
  });
  assert.ok(text.includes('\n["n/default/u/ada",12]\n'));
  assert.ok(!text.includes("xp/this-process"), "signs of life are of one process");
});

test("penstock export: no read asks for more than some megabytes, and no piece is much longer than its largest value", async (t) => {
  const store = await sqlite(t);
  const large = JSON.stringify("x".repeat(300_000));
  for (let at = 0; at < 60; at++) await store.commit({ put: [[`k/${String(at).padStart(3, "0")}`, large]] });
  let most = 0;
  const sizeOf = (rows: readonly (Row | undefined)[]) => {
    most = Math.max(
      most,
      rows.reduce((sum, row) => sum + (row?.value.length ?? 0), 0),
    );
  };
  const watched: Store = {
    ...store,
    get: async (key) => {
      const row = await store.get(key);
      sizeOf([row]);
      return row;
    },
    getMany: async (keys, longest) => {
      const rows = await store.getMany(keys, longest);
      sizeOf(rows);
      return rows;
    },
    scan: async (range) => {
      const rows = await store.scan(range);
      sizeOf(rows);
      return rows;
    },
  };
  const { pieces, end } = await exported(watched);
  assert.equal(end.rows, 60);
  assert.ok(most <= 8 * 1024 * 1024 && most >= large.length, String(most));
  assert.ok(Math.max(...pieces.map(({ length }) => length)) < 2 * large.length);
});

/** What may happen to a file, and what the import says. */
const SPOILT: [what: string, spoil: (text: string) => string, says: RegExp][] = [
  ["is empty", () => "", /^it is empty$/],
  ["is of another program", () => "hello\n", /^it is no export of Penstock$/],
  [
    "is of a newer format",
    (text) => text.replace('"format":1', '"format":2'),
    /^it has format 2, this version knows 1/,
  ],
  [
    "is of a newer layout",
    (text) => text.replace('"schema":2', '"schema":3'),
    /^it was written by another version \(schema 3;/,
  ],
  [
    "was cut in a line",
    (text) => text.slice(0, 2_000),
    /^line \d+ is neither a row nor the end: it was cut off or changed$/,
  ],
  [
    "was cut after a line",
    (text) => text.slice(0, text.lastIndexOf("\n", 2_000) + 1),
    /^its last line is missing: it was cut off after \d+ rows$/,
  ],
  [
    "lacks a row",
    (text) => text.replace(/\["c\/1\/n"[^\n]*\n/, ""),
    /^it has 1199 rows and should have 1200: it was changed$/,
  ],
  [
    "has a changed value",
    (text) => text.replace('"c/1/n","1"', '"c/1/n","2"'),
    /^its checksum is another one: it was changed$/,
  ],
  [
    "has another header",
    (text) => text.replace('"service":"Test"', '"service":"Tast"'),
    /^its checksum is another one/,
  ],
  [
    "has two lines exchanged",
    (text) => text.replace(/(\["c[^\n]*\n)(\["h[^\n]*\n)/, "$2$1"),
    /^line 3: its key is not behind/,
  ],
  ["has a row twice", (text) => text.replace(/(\["h[^\n]*\n)/, "$1$1"), /^line 4: its key is not behind/],
  ["has an impossible key", (text) => text.replace('"h/x"', '"h/ x"'), /^before line \d+: not a key of the store/],
  ["has more after its end", (text) => `${text}["~","1"]\n`, /^there is more after its last line/],
];

const small = {
  put: [
    ["c/1/n", "1"],
    ["h/x", "[]"],
  ] as [string, string][],
};

test("penstock import: a file that was cut or changed anywhere is refused with what is wrong, and leaves an empty store", async (t) => {
  const source = await sqlite(t);
  await source.commit(small);
  const many = Array.from({ length: 1_198 }, (_, at): [string, string] => [`u/${String(at).padStart(5, "0")}`, "1"]);
  await source.commit({ put: many });
  const { text, end } = await exported(source);
  assert.equal(end.rows, 1_200);
  const store = await sqlite(t);
  for (const [what, spoil, says] of SPOILT) {
    const spoilt = spoil(text);
    assert.notEqual(spoilt, text, what);
    await assert.rejects(importRows(store, bytes(spoilt)), (error: Error) => {
      assert.match(error.message, says, what);
      return true;
    });
    assert.deepEqual(await contentOf(store), [], what);
  }
  await importRows(store, bytes(text));
  assert.deepEqual(await contentOf(store), await contentOf(source));
});

test("penstock import: a store with any row is refused and keeps what it has", async () => {
  const store = createMemoryStore();
  await store.commit({ put: [["~", "1"]] });
  const other = createMemoryStore();
  await other.commit(small);
  const { text } = await exported(other);
  await assert.rejects(importRows(store, bytes(text)), /^Error: the store is not empty: name a new one$/);
  assert.deepEqual(await contentOf(store), [["~", "1"]]);
});

test("penstock import: what was begun and not ended is not served, and the next import begins anew", async (t) => {
  const source = await sqlite(t);
  await fill(source);
  const { text } = await exported(source);
  const target = await sqlite(t);
  // The process is killed: nothing is cleared after the last commit that it made.
  let commits = 0;
  const killed: Store = {
    ...target,
    commit: (commit) => (++commits > 3 ? Promise.reject(new Error("killed")) : target.commit(commit)),
  };
  await assert.rejects(importRows(killed, bytes(text)), /killed/);
  assert.ok((await contentOf(target)).length > 1_000);
  await assert.rejects(requireNoImport(target), /did not come to its end: run penstock import again/);
  await target.close();
  const manifest = { ...manifestWith(), store: `sqlite:${target.file}` };
  await assert.rejects(startService(t, manifest), ({ booted }: { booted: { issues: { message: string }[] } }) => {
    assert.match(booted.issues[0]!.message, /an import into it did not come to its end/);
    return true;
  });
  const again = await openSqliteStore({ file: target.file, logger });
  await importRows(again, bytes(text));
  assert.deepEqual(
    await contentOf(again),
    (await contentOf(source)).filter(([key]) => !key.startsWith("xp/")),
  );
  await again.close();
  await (await startService(t, manifest)).stop();
});

test("penstock import: stops when another process writes to the store or has started on it, and leaves what that one wrote", async () => {
  const source = createMemoryStore();
  await source.commit(small);
  const { text } = await exported(source);
  for (const [key, says] of [
    ["h/x", /another process has written to the store meanwhile: stop it/],
    ["xp/other", /a service has started on the store meanwhile/],
  ] as const) {
    const store = createMemoryStore();
    let marked = false;
    const raced: Store = {
      ...store,
      commit: async (commit) => {
        const revision = await store.commit(commit);
        if (!marked) await store.commit({ put: [[key, "1"]] });
        marked = true;
        return revision;
      },
    };
    await assert.rejects(importRows(raced, bytes(text)), says);
    assert.equal((await store.get(key))?.value, "1", "what is not ours is left there");
    await assert.rejects(requireNoImport(store), /did not come to its end/);
  }
});

test("penstock import: a second one that begins meanwhile takes the store over, and the first says so", async () => {
  const source = createMemoryStore();
  await source.commit(small);
  const { text } = await exported(source);
  const store = createMemoryStore();
  async function* interrupted(): AsyncGenerator<Uint8Array> {
    const half = text.indexOf("\n", text.length / 2) + 1;
    yield Buffer.from(text.slice(0, half));
    await importRows(store, bytes(text));
    yield Buffer.from(text.slice(half));
  }
  await assert.rejects(importRows(store, interrupted()), /another import has begun meanwhile/);
  assert.deepEqual(await contentOf(store), await contentOf(source), "the second one is whole");
});

test("penstock export: waits to see whether the processes that left signs of life are alive, and refuses when one is", async () => {
  const store = createMemoryStore();
  await store.commit({
    put: [
      ["xp/dead", "1"],
      ["xp/alive", "1"],
    ],
  });
  await requireIdle(store, 1);
  let reads = 0;
  const beating: Store = {
    ...store,
    scan: async (range) => {
      if (++reads === 2) await store.commit({ put: [["xp/alive", "2"]] });
      return store.scan(range);
    },
  };
  await assert.rejects(requireIdle(beating, 1), /^Error: a process uses the store: stop the service first$/);
});

test("penstock export and import: files, standard output and input; from a file of SQLite to another one", async (t) => {
  const store = await sqlite(t);
  await store.commit(small);
  const cwd = dirname(store.file);
  for (const [name, file] of Object.entries({ one: "test.db", two: "two.db", three: "three.db" }))
    await writeFile(join(cwd, `${name}.yaml`), JSON.stringify({ ...manifestWith(), store: `sqlite:${file}` }));
  const run = (...args: string[]) => penstock(args, { cwd });
  const busy = await run("export", "out.jsonl", "--config", "one.yaml");
  assert.equal(busy.code, 1);
  assert.match(busy.stderr, /^penstock: sqlite:test\.db is in use by another process/);
  await store.close();
  const out = await run("export", "out.jsonl", "--config", "one.yaml");
  assert.deepEqual([out.code, out.stdout], [0, ""]);
  assert.match(out.stderr, /^exported 2 rows \(1 conversation, 1 run\), sha256 [0-9a-f]{64}\n$/);
  const taken = await run("export", "out.jsonl", "--config", "one.yaml");
  assert.match(taken.stderr, /^penstock: out\.jsonl exists already/);
  const imported = await run("import", "out.jsonl", "--config", "two.yaml");
  assert.equal(imported.stderr, out.stderr.replace("exported", "imported"));
  const refused = await run("import", "out.jsonl", "--config", "two.yaml");
  assert.equal(refused.code, 1);
  assert.equal(refused.stderr, "penstock: out.jsonl cannot be imported: the store is not empty: name a new one\n");
  const piped = `"${process.execPath}" "${PENSTOCK}" export - --config two.yaml | "${process.execPath}" "${PENSTOCK}" import - --config three.yaml`;
  const { stdout } = await promisify(execFile)("sh", ["-c", piped], { cwd });
  assert.equal(stdout, "");
  const last = await openSqliteStore({ file: join(cwd, "three.db"), logger });
  t.after(() => last.close());
  assert.deepEqual(await contentOf(last), small.put);
  assert.match(await readFile(join(cwd, "out.jsonl"), "utf8"), /^\{"penstock":"export"/);
  assert.deepEqual(
    (await readdir(cwd)).filter((name) => name.endsWith(".part")),
    [],
  );
});
