/** What SQLite refuses for what is in it, which no test can make as large as it would have to be: a driver that says so. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { SqliteConnection } from "../../../core/storage/sqlite-schema.ts";
import { createSqliteWriter } from "../../../core/storage/sqlite-write.ts";

const LIMIT = 1_000;

function connection(written: string[]): SqliteConnection {
  return {
    async query(sql, ...parameters) {
      const [values] = parameters as string[];
      if (!sql.startsWith("INSERT INTO rows")) return [];
      if (values!.length > LIMIT) throw Object.assign(new Error("string or blob too big"), { code: "SQLITE_TOOBIG" });
      written.push(...Object.keys(JSON.parse(values!)));
      return [];
    },
    close: async () => {},
  };
}

test("a commit with a value that is too large fails alone and for good; those that travelled with it happen", async () => {
  const written: string[] = [];
  let revision = 0;
  const revisions = { take: async (count: number) => (revision += count), forget() {} };
  const { write } = createSqliteWriter(connection(written), revisions);
  const put = (key: string, length: number) => ({ put: [[key, JSON.stringify("x".repeat(length))] as const] });
  const [first, large, last] = await write([put("a", 10), put("b", 2 * LIMIT), put("c", 10)]);
  assert.equal(typeof first, "number");
  assert.ok(large instanceof Error);
  assert.deepEqual([large.name, large.message], ["Error", "a value is too large"]);
  assert.equal(typeof last, "number");
  assert.deepEqual(written, ["a", "c"]);
  assert.equal(
    (await write([put("d", LIMIT / 2), put("e", LIMIT / 2)])).filter(Number.isFinite).length,
    2,
    "only together too large",
  );
});
