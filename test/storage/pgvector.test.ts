/** The store of PostgreSQL compares vectors by pgvector: what is searched follows from the rows, whoever writes them. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, type TestContext, test } from "node:test";
import pg from "pg";
import { BootError } from "../../core/app/start.ts";
import { ALL_VECTORS, createExactVectors, createLayout, type VectorIndex } from "../../core/memory/semantic/exact.ts";
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
  vectors: VectorIndex;
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
  return { store, vectors: createExactVectors(store, LAYOUT, null, { tables }), tables, lines, reads: () => read };
}

/** A process that has none: of an older release, or with `pgvector: off`. */
async function openWithout(t: TestContext, url: string): Promise<VectorIndex> {
  const store = await openPostgresStore(url, { logger: recordingLogger().logger });
  t.after(() => store.close());
  return createExactVectors(store, LAYOUT, null);
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
const find = async (vectors: VectorIndex, degrees = 0, limit = 10) =>
  (await vectors.search({ vector: at(degrees), owner: "u", limit, threshold: 0.5 })).map(({ message }) => message);
/** What the tables themselves say, without the rows that wait. */
const inTables = async ({ tables }: Opened, prefix = LAYOUT.vectors()) =>
  (await tables.nearest({ prefix, vector: at(0), limit: 1_000 }))?.keys.length;
const count = async (schema: string, table: string) =>
  Number((await db.query(`SELECT count(*) AS count FROM ${schema}.${table}`))[0]?.count);
const NOTES = "penstock_vector_notes_1";
const TABLE = "penstock_vectors_1_4";

/** A role without rights. In PGlite everybody is the role that `SET ROLE` names, until the end of the test. */
const DEADLOCK = "40P01";

/** It takes the tables of all stores at once: where one of them is at work on two of them, PostgreSQL ends one of both, and says so. */
async function dropExtension(): Promise<void> {
  const drop = () => db.query("DROP EXTENSION vector CASCADE");
  await drop().catch((error: { code?: string }) => (error.code === DEADLOCK ? dropExtension() : Promise.reject(error)));
}

async function createRole(t: TestContext): Promise<string> {
  const role = `role_${randomUUID().replaceAll("-", "")}`;
  await db.query(`CREATE ROLE ${role}`);
  t.after(() => db.query(`RESET ROLE; DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`));
  return role;
}

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
  await dropExtension();
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
  await dropExtension();
  await db.query("CREATE SCHEMA elsewhere");
  await db.query("CREATE EXTENSION vector SCHEMA elsewhere");
  const third = await open(t, url);
  await third.vectors.idle();
  assert.deepEqual(await find(third.vectors), ["b", "c", "d"]);
  assert.equal(await inTables(third), 3);
});

test("search of exact: where the index of pgvector gives up on vectors of others, those of the user are compared one by one, also beside new ones", async (t) => {
  const { url } = await db.createSchema();
  // Of the database for connections to a server, and of the session that PGlite has.
  const bounded = (value: string) =>
    db.query(
      `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET hnsw.max_scan_tuples = ${value}', current_database()); END $$;
       SET hnsw.max_scan_tuples = ${value}`,
    );
  await bounded("1");
  t.after(() => bounded("20000"));
  const { vectors } = await open(t, url, 50);
  const make = (count: number, degrees: number, owner: string) =>
    Array.from({ length: count }, (_, index) => entry(`${degrees}/${index}`, degrees + index / 100, "c", owner));
  await vectors.put([...make(500, 0, "v"), ...make(60, 30, "u")]);
  await vectors.idle();
  for (const owner of ["u", "v"]) await vectors.search({ vector: at(0), owner, limit: 1, threshold: 0.5 });
  await vectors.idle();
  await vectors.put(make(40, 50, "u"));
  await vectors.idle();
  assert.deepEqual(await find(vectors, 0, 3), ["30/0", "30/1", "30/2"]);
});

test("store postgres: vectors whose table is gone are brought into a new one, as where pg_restore could not make it", async (t) => {
  const { schema, url } = await db.createSchema();
  const before = await open(t, url);
  await before.vectors.put([entry("a", 1), entry("b", 2)]);
  await before.vectors.idle();
  await db.query(`DROP TABLE ${schema}.${TABLE}`);
  const next = await open(t, url);
  assert.deepEqual(await find(next.vectors), ["a", "b"]);
  await next.vectors.idle();
  assert.equal(await inTables(next), 2);
});

test("store postgres: a user who may not create the extension vector is told so, and the store is not said to fail", async (t) => {
  const { schema, url } = await db.createSchema();
  const user = await createRole(t);
  await dropExtension();
  await db.query(`CREATE SCHEMA ${schema} AUTHORIZATION ${user}`);
  // For connections to a server by the URL, and for the session that PGlite has.
  await db.query(`SET ROLE ${user}`);
  t.after(() => db.query("CREATE EXTENSION vector"));
  const { logger, lines } = recordingLogger();
  const store = await openPostgresStore(`${url}&options=-c%20role%3D${user}`, { logger });
  t.after(() => store.close());
  const tables = await store.vectors!(ROWS);
  const problem = "the extension vector (pgvector) cannot be created: permission denied to create extension";
  assert.ok("problem" in tables && tables.problem.startsWith(problem), JSON.stringify(tables));
  assert.deepEqual(
    lines.filter((line) => !line.startsWith("info")),
    [],
  );
});

test("store postgres: the tables of pgvector of another user are not used, and no store fails for it", async (t) => {
  const { schema, url } = await db.createSchema();
  const before = await open(t, url);
  await before.vectors.put([entry("a", 1)]);
  await before.vectors.idle();
  const user = await createRole(t);
  await db.query(`GRANT ALL ON SCHEMA ${schema} TO ${user}`);
  await db.query(
    `ALTER TABLE ${schema}.penstock OWNER TO ${user}; ALTER TABLE ${schema}.penstock_meta OWNER TO ${user}; SET ROLE ${user}`,
  );
  const { logger, lines } = recordingLogger();
  const store = await openPostgresStore(`${url}&options=-c%20role%3D${user}`, { logger });
  t.after(() => store.close());
  const problem = "this user does not own its tables, or may not make more in its schema";
  assert.deepEqual(await store.vectors!(ROWS), { problem, wasUsed: true });
  assert.deepEqual(lines, [`warn: PostgreSQL: vectors are compared in this process, not in the database: ${problem}`]);
});

test("store postgres: nobody else can make the function that notes vectors the trigger of a table of their own", async (t) => {
  const { schema, url } = await db.createSchema();
  await open(t, url);
  const user = await createRole(t);
  await db.query(`CREATE SCHEMA own_${schema} AUTHORIZATION ${user}; GRANT USAGE ON SCHEMA ${schema} TO ${user}`);
  const make = `CREATE TABLE own_${schema}.rows (key text, value text, revision bigint);
    CREATE TRIGGER mine AFTER DELETE ON own_${schema}.rows FOR EACH ROW EXECUTE FUNCTION ${schema}.penstock_note_vector_1()`;
  await assert.rejects(db.query(`SET ROLE ${user}; ${make}`), /permission denied for function/);
});

test("store postgres: processes that start at once on a new database all compare vectors by pgvector", async (t) => {
  await dropExtension();
  // Of two schemas, so that they do not wait for each other.
  const urls = [(await db.createSchema()).url, (await db.createSchema()).url];
  await Promise.all([...urls, ...urls, ...urls].map((url) => open(t, url)));
});

test("store postgres: a row that is being deleted while an older database is noted leaves nothing in the tables of pgvector", {
  skip: db.name === "PGlite" && "PGlite has one session",
}, async (t) => {
  const { schema, url } = await db.createSchema();
  const here = await open(t, url);
  await here.vectors.put([entry("a", 1)]);
  await here.vectors.idle();
  // As before the row was noted.
  await db.query(
    `DELETE FROM ${schema}.${NOTES}; UPDATE ${schema}.penstock_meta SET value = '' WHERE key = 'vectors_1'`,
  );
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  t.after(() => pool.end());
  const other = await pool.connect();
  const key = LAYOUT.vector({ owner: "u", conversation: "c", message: "a" });
  await other.query({ text: `BEGIN; DELETE FROM ${schema}.penstock WHERE key = '${key}'` });
  here.tables.wake();
  await here.tables.idle();
  assert.equal(await count(schema, NOTES), 1);
  await other.query({ text: "COMMIT" });
  other.release();
  here.tables.wake();
  await here.tables.idle();
  assert.deepEqual([await count(schema, NOTES), await count(schema, TABLE)], [0, 0]);
});

test("store postgres: where the tables of pgvector could not be opened once, they can be the next time", async (t) => {
  const { schema, url } = await db.createSchema();
  const store = await openPostgresStore(url, { logger: recordingLogger().logger });
  t.after(() => store.close());
  await db.query(`ALTER SCHEMA ${schema} RENAME TO away_${schema}`);
  await assert.rejects(store.vectors!(ROWS));
  await db.query(`ALTER SCHEMA away_${schema} RENAME TO ${schema}`);
  assert.ok("nearest" in (await store.vectors!(ROWS)));
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
