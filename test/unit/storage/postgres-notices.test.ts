/** The connection for notices, on a pool that is slow to connect. */
import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import type { Pool } from "pg";
import type { PostgresDatabase } from "../../../core/storage/postgres-database.ts";
import { PostgresNotices } from "../../../core/storage/postgres-notices.ts";
import { silent, soon } from "../../support/providers.ts";

test("notices of PostgreSQL: close ends while the connection is only being made, which is given back", async () => {
  let connected = (_client: unknown): void => {};
  let released = false;
  const client = Object.assign(new EventEmitter(), {
    release: () => {
      released = true;
    },
  });
  const connect = () =>
    new Promise((resolve) => {
      connected = resolve;
    });
  const pool = { end: async () => {} } as unknown as Pool;
  const hold = async () => ({ client: await connect(), query: async () => ({ rows: [] }) });
  const database = { read: async () => ({ rows: [] }), connections: { hold } } as unknown as PostgresDatabase;
  const notices = new PostgresNotices(pool, database, silent);
  notices.watch("topic", () => {});
  const closing = notices.close();
  // Once it knows that it is to end.
  await new Promise((resolve) => setTimeout(resolve, 20));
  connected(client);
  await soon(closing, "the end");
  assert.equal(released, true);
});
