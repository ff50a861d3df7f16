/** The store of PostgreSQL compares vectors by pgvector: what is searched follows from the rows, whoever writes them. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import { BootError } from "../../core/app/start.ts";
import { ExactVectors } from "../../core/memory/semantic/exact.ts";
import { ALL_VECTORS, createLayout } from "../../core/memory/semantic/layout.ts";
import { readVector } from "../../core/memory/semantic/rows.ts";
import { postgresNames } from "../../core/storage/postgres-names.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { vectorNames } from "../../core/storage/postgres-vector-names.ts";
import { nearestKeys, searchSettings } from "../../core/storage/postgres-vector-sql.ts";
import type { Store } from "../../core/storage/store.ts";
import type { VectorTables } from "../../core/storage/vector-tables.ts";
import { vectorsSuite } from "../suites/vectors.suite.ts";
import { NO_PGBOUNCER, startPgBouncer } from "../support/pgbouncer.ts";
import { startPgvector } from "../support/pgvector.ts";
import { NO_POSTGRES, type PostgresServer, sharedPostgres } from "../support/postgres.ts";
import { manifestWith, startService } from "../support/service.ts";
import { recordingLogger } from "../support/storage.ts";
import { clusteredVector, createNumbers, nearestMessages, randomVector } from "../support/vectors.ts";

const db = await startPgvector();
after(() => db.close());

const LAYOUT = createLayout("default");
const ROWS = { prefix: ALL_VECTORS, decode: (value: string) => readVector(value).vector };
const AGREES = /^info: PostgreSQL: vectors are compared in the database, by pgvector 0\.\d+\.\d+$/;

interface Opened {
  store: Store;
  vectors: ExactVectors;
  tables: VectorTables;
  lines: string[];
  /** How many rows of the store were read one by one. */
  reads(): number;
}

/** A process that has the tables. */
async function open(t: TestContext, url: string, indexedFrom?: number): Promise<Opened> {
  const { logger, lines } = recordingLogger();
  const inner = await openPostgresStore(url, { logger, ...(indexedFrom === undefined ? {} : { indexedFrom }) });
  t.after(() => inner.close());
  const tables = await inner.vectors!(ROWS);
  assert.ok("nearest" in tables, JSON.stringify(tables));
  let read = 0;
  const store: Store = {
    ...inner,
    getMany: (keys, longest) => {
      read += keys.length;
      return inner.getMany(keys, longest);
    },
  };
  return { store, vectors: new ExactVectors(store, LAYOUT, null, { tables }), tables, lines, reads: () => read };
}

/** A process that has none: of an older release, or with `pgvector: off`. */
async function openWithout(t: TestContext, url: string): Promise<ExactVectors> {
  const store = await openPostgresStore(url, { logger: recordingLogger().logger });
  t.after(() => store.close());
  return new ExactVectors(store, LAYOUT, null);
}

const at = (degrees: number, dimensions = 4): Float32Array => {
  const vector = new Float32Array(dimensions);
  vector[0] = Math.cos((degrees * Math.PI) / 180);
  vector[1] = Math.sin((degrees * Math.PI) / 180);
  return vector;
};
const entry = (message: string, degrees: number, conversation = "c", owner = "u") => ({
  ...{ owner, conversation, message },
  vector: at(degrees),
});
const find = async (vectors: ExactVectors, degrees = 0, limit = 10) =>
  (await vectors.search({ vector: at(degrees), owner: "u", limit, threshold: 0.5 })).map(({ message }) => message);
/** What the tables themselves say, without the rows that wait. */
const inTables = async ({ tables }: Opened, prefix = LAYOUT.vectors()) =>
  (await tables.nearest({ prefix, vector: at(0), limit: 1_000 }))?.keys.length;
const count = async (schema: string, table: string) =>
  Number((await db.query(`SELECT count(*) AS count FROM ${schema}.${table}`))[0]?.count);
const NOTES = "penstock_vector_notes_1";
const TABLE = "penstock_vectors_1_4";

const requiring = (store: string) =>
  manifestWith({}, { store, memory: { default: { semantic: { embedding: "local/hash", pgvector: "required" } } } });

vectorsSuite(
  `exact, compared by pgvector in ${db.name}`,
  async (t) => (await open(t, (await db.createSchema()).url)).vectors,
);

for (const [kind, spread] of [
  ["in clusters", 0.7],
  ["that are nearly the same", 0.05],
] as const) {
  test(`search of exact through the index of pgvector finds at least 0.95 of the nearest 10, and reads some rows: vectors ${kind}`, async (t) => {
    const { schema, url } = await db.createSchema();
    const { vectors, reads } = await open(t, url, 200);
    const [next, dimensions] = [createNumbers(7), 32];
    const centres = Array.from({ length: spread < 0.1 ? 1 : 20 }, () => randomVector(next, dimensions));
    const make = () => clusteredVector(next, centres, spread);
    const entries = Array.from({ length: 400 }, (_, index) => {
      return { owner: "u", conversation: `c${index % 20}`, message: `m${index}`, vector: make() };
    });
    await vectors.put(entries);
    await vectors.idle();
    const search = (vector: Float32Array) => vectors.search({ vector, owner: "u", limit: 10, threshold: -1 });
    // It shows that the owner has many vectors.
    await search(make());
    await vectors.idle();
    assert.equal(await count(schema, "penstock_vectors_1_32 WHERE large"), 400);
    const before = reads();
    let found = 0;
    for (let query = 0; query < 30; query++) {
      const vector = make();
      const expected = new Set(nearestMessages(entries, vector, 10));
      found += (await search(vector)).filter(({ message }) => expected.has(message)).length;
    }
    assert.ok(found >= 0.95 * 300, `${found} of 300`);
    assert.ok(reads() - before <= 30 * 30, `${reads() - before} rows`);
  });
}

test("search of exact: many vectors are compared through the index of pgvector, few one by one", async (t) => {
  const { schema, url } = await db.createSchema();
  const { vectors } = await open(t, url);
  await vectors.put([entry("a", 1)]);
  await vectors.idle();
  const names = vectorNames(postgresNames(schema));
  const text = (how: "exact" | "indexed") =>
    nearestKeys(names, "public", 4, how)
      .replaceAll("$1", "'a'")
      .replaceAll("$2", "'z'")
      .replaceAll("$3", "'[1,0,0,0]'")
      .replaceAll("$4", "5");
  const explain = async (how: "exact" | "indexed") => {
    const settings = [...searchSettings(200), "SET LOCAL enable_seqscan = off"].join("; ");
    return JSON.stringify(await db.query(`BEGIN; ${settings}; EXPLAIN ${text(how)}`));
  };
  assert.match(await explain("indexed"), /Index Scan using penstock_vectors_1_4_nearest/);
  assert.doesNotMatch(await explain("exact"), /_nearest/);
});

test("store postgres: what a process without pgvector writes, replaces and deletes is so in the tables of pgvector", async (t) => {
  const { schema, url } = await db.createSchema();
  const here = await open(t, url);
  const other = await openWithout(t, url);
  assert.equal(here.lines.filter((line) => AGREES.test(line)).length, 1, here.lines.join("\n"));
  await other.put([entry("a", 1), entry("b", 2), entry("c", 3), entry("d", 4, "d"), entry("e", 5, "e", "v")]);
  // At once, and when they are in the tables.
  assert.deepEqual(await find(here.vectors), ["a", "b", "c", "d"]);
  await here.vectors.idle();
  assert.equal(await inTables(here), 5);
  assert.deepEqual(await find(here.vectors), ["a", "b", "c", "d"]);
  await other.put([entry("a", 90)]);
  assert.deepEqual(await find(here.vectors), ["b", "c", "d"]);
  assert.deepEqual(await find(here.vectors, 90), ["a"]);
  await here.vectors.idle();
  assert.deepEqual(await find(here.vectors, 90), ["a"]);
  await other.delete([{ owner: "u", conversation: "c", message: "b" }]);
  await other.delete([{ owner: "u", conversation: "d" }]);
  assert.deepEqual(await find(here.vectors), ["c"]);
  assert.deepEqual([await count(schema, NOTES), await count(schema, TABLE)], [3, 3]);
  await other.clear();
  assert.deepEqual([await count(schema, NOTES), await count(schema, TABLE)], [0, 0]);
});

test("store postgres: vectors of an older database are found from its first start with pgvector on, and brought into the tables in slices", async (t) => {
  const { schema, url } = await db.createSchema();
  const older = await openWithout(t, url);
  await older.put(Array.from({ length: 1_200 }, (_, index) => entry(`m${index}`, index / 20)));
  const here = await open(t, url);
  const nearest = ["m0", "m1", "m2"];
  assert.deepEqual(await find(here.vectors, 0, 3), nearest);
  const meanwhile = older.put([entry("m0", 90), entry("new", -1)]);
  await here.vectors.idle();
  await meanwhile;
  here.tables.wake();
  await here.vectors.idle();
  assert.deepEqual([await count(schema, NOTES), await count(schema, TABLE)], [1_201, 1_201]);
  assert.equal((await here.tables.nearest({ prefix: LAYOUT.vectors(), vector: at(0), limit: 1 }))?.unfilled.length, 0);
  assert.deepEqual(await find(here.vectors, 0, 3), ["m1", "m2", "m3"]);
});

test("store postgres: DROP EXTENSION vector stops neither commits nor searches, and the next start makes everything anew", async (t) => {
  const { schema, url } = await db.createSchema();
  const here = await open(t, url);
  await here.vectors.put([entry("a", 1), entry("b", 2)]);
  await here.vectors.idle();
  await db.query("DROP EXTENSION vector CASCADE");
  assert.deepEqual(await find(here.vectors), ["a", "b"]);
  await here.vectors.put([entry("c", 3)]);
  await here.vectors.delete([{ owner: "u", conversation: "c", message: "a" }]);
  assert.deepEqual(await find(here.vectors), ["b", "c"]);
  assert.ok(
    here.lines.some((line) => line.startsWith("warn: PostgreSQL: pgvector does not work")),
    here.lines.join("\n"),
  );
  const next = await open(t, url);
  assert.deepEqual(await find(next.vectors), ["b", "c"]);
  await next.vectors.idle();
  assert.deepEqual([await inTables(next), await count(schema, TABLE)], [2, 2]);
  // The process before it uses what the new one has made.
  await here.vectors.put([entry("d", 4)]);
  await here.vectors.idle();
  assert.deepEqual(await find(here.vectors), ["b", "c", "d"]);
  assert.equal(await inTables(here), 3);
  // It may be in any schema.
  await db.query("DROP EXTENSION vector CASCADE");
  await db.query("CREATE SCHEMA elsewhere");
  await db.query("CREATE EXTENSION vector SCHEMA elsewhere");
  const third = await open(t, url);
  await third.vectors.idle();
  assert.deepEqual(await find(third.vectors), ["b", "c", "d"]);
  assert.equal(await inTables(third), 3);
});

test("search of exact: what somebody adds to the tables of pgvector alone, or leaves there, is not found", async (t) => {
  const { schema, url } = await db.createSchema();
  const here = await open(t, url);
  await here.vectors.put([entry("a", 1), entry("b", 2, "c", "v")]);
  await here.vectors.idle();
  const forged = LAYOUT.vector({ owner: "u", conversation: "c", message: "forged" });
  await db.query(`INSERT INTO ${schema}.${NOTES} VALUES ('${forged}', 1, 4)`);
  await db.query(`INSERT INTO ${schema}.${TABLE} VALUES ('${forged}', '[1,0,0,0]')`);
  assert.deepEqual(await find(here.vectors), ["a"]);
  await db.query(`INSERT INTO ${schema}.${NOTES} VALUES ('${forged}2', 1)`);
  here.tables.wake();
  await here.tables.idle();
  assert.equal(await count(schema, `${NOTES} WHERE dimensions IS NULL`), 0);
});

test("store postgres: vectors of several dimensions have tables of their own, and too many for an index are compared one by one", async (t) => {
  const { schema, url } = await db.createSchema();
  const { vectors } = await open(t, url, 2);
  const sizes = [3, 4, 2_001, 4_001];
  const make = (message: string, dimensions: number, degrees: number) => ({
    ...{ owner: `u${dimensions}`, conversation: "c", message },
    vector: at(degrees, dimensions),
  });
  await vectors.put(sizes.flatMap((size) => [make("far", size, 80), make("near", size, 10), make("middle", size, 40)]));
  for (let round = 0; round < 2; round++) {
    await vectors.idle();
    for (const size of sizes) {
      const hits = await vectors.search({ vector: at(0, size), owner: `u${size}`, limit: 5, threshold: -1 });
      assert.deepEqual([size, ...hits.map(({ message }) => message)], [size, "near", "middle", "far"]);
    }
  }
  const large = sizes.map((size) => count(schema, `penstock_vectors_1_${size} WHERE large`));
  assert.deepEqual(await Promise.all(large), [3, 3, 3, 0]);
});

test("store postgres: two processes bring vectors into the tables at the same time, each once", async (t) => {
  const { schema, url } = await db.createSchema();
  const both = [await open(t, url, 100), await open(t, url, 100)];
  await Promise.all(
    both.map(async ({ vectors }, process) => {
      for (let round = 0; round < 5; round++) {
        const entries = Array.from({ length: 50 }, (_, index) => entry(`${process}/${index}`, index));
        await Promise.all([vectors.put(entries), find(vectors)]);
        if (round === 3) await vectors.delete([{ owner: "u", conversation: "c", message: `${process}/0` }]);
      }
    }),
  );
  for (const { vectors } of both) await vectors.idle();
  assert.deepEqual([await count(schema, NOTES), await count(schema, `${NOTES} WHERE dimensions IS NULL`)], [100, 0]);
  assert.equal(await count(schema, TABLE), 100);
  for (const { vectors } of both) assert.equal((await find(vectors, 0, 200)).length, 100);
});

test("store postgres behind PgBouncer in transaction mode: vectors are compared by pgvector", {
  skip: db.name === "PGlite" ? "PGlite is as a pooler by itself" : NO_PGBOUNCER,
}, async (t) => {
  const { schema, url } = await db.createSchema();
  const bounds = "statement_timeout,lock_timeout,idle_in_transaction_session_timeout";
  const pooled = await startPgBouncer(t, url, `ignore_startup_parameters = ${bounds}`);
  const both = [await open(t, pooled, 20), await open(t, pooled, 20)];
  for (let round = 0; round < 3; round++) {
    await Promise.all(
      both.map(async ({ vectors }, process) => {
        await vectors.put(Array.from({ length: 20 }, (_, index) => entry(`${process}/${round}/${index}`, index)));
        await find(vectors);
        await vectors.idle();
      }),
    );
  }
  for (const { vectors } of both) assert.equal((await find(vectors, 0, 200)).length, 120);
  assert.equal(await count(schema, TABLE), 120);
});

test("a service with memory.NAME.semantic.pgvector searches what it has saved, and nothing that was deleted", async (t) => {
  const { schema, url } = await db.createSchema();
  const service = await startService(t, requiring(url));
  const send = async (path: string, body: object) => {
    const reply = await service.post(`/api/memory${path}`, body);
    assert.ok(reply.ok, `${path} ${reply.status} ${await reply.clone().text()}`);
  };
  const said = (id: string, text: string) => ({ id, role: "user", parts: [{ type: "text", text }] });
  for (const conversationId of ["kept", "gone"]) {
    await send("/conversations", { conversationId, userId: "ada" });
    const messages = [said(`${conversationId}1`, "the red bicycle"), said(`${conversationId}2`, "a bowl of soup")];
    await send("/save-messages", { userId: "ada", conversationId, messages });
  }
  const found = async () => {
    const reply = await service.get("/api/memory/search?searchQuery=a+red+bicycle&userId=ada");
    const { data } = (await reply.json()) as { data: { results: { id: string }[] } };
    return data.results.map(({ id }) => id).sort();
  };
  assert.deepEqual(await found(), ["gone1", "kept1"]);
  await fetch(`${service.url}/api/memory/conversations/gone`, { method: "DELETE" });
  assert.deepEqual(await found(), ["kept1"]);
  assert.equal(await count(schema, NOTES), 2);
  const lines = service.log.filter(({ msg }) => /vectors are compared/.test(String(msg)));
  assert.equal(lines.length, 1);
});

test("store postgres on a database without the extension vector: it says so once, and vectors are compared in the process; with pgvector: required no service starts", async (t) => {
  const server = await sharedPostgres();
  if (server === null) return t.skip(NO_POSTGRES);
  t.after(() => (server as PostgresServer).close());
  const found = await server.query("SELECT FROM pg_available_extensions WHERE name = 'vector'");
  if (found.length > 0) return t.skip("this server has pgvector");
  const { logger, lines } = recordingLogger();
  const url = await server.createDatabase();
  const store = await openPostgresStore(url, { logger });
  t.after(() => store.close());
  const problem = "it has no extension vector (pgvector)";
  for (let round = 0; round < 2; round++) {
    const tables = await store.vectors!(ROWS);
    assert.ok("problem" in tables && tables.problem === problem);
  }
  assert.deepEqual(lines, [`info: PostgreSQL: vectors are compared in this process, not in the database: ${problem}`]);
  const error = await startService(t, requiring(url)).catch((thrown: unknown) => thrown);
  assert.ok(error instanceof BootError, String(error));
  const errors = error.booted.issues.filter(({ severity }) => severity === "error");
  assert.deepEqual(
    errors.map(({ path, message }) => `${path} ${message}`),
    [`memory.default.semantic.pgvector cannot be required of this database: ${problem}`],
  );
});
