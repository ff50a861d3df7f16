/** Large values of one user cost no other user anything: what SQLite and PostgreSQL read for a save is counted. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, type TestContext, test } from "node:test";
import { serveMemory } from "../support/memory.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { temporaryFolder } from "../support/storage.ts";

const server = await sharedPostgres();
after(() => server?.close());

const MIB = 1024 * 1024;
const SAVES = 40;
/** More than the page cache of the connection that writes, in conversations on both sides of the victim's. */
const LARGE = 6;
const LARGE_BYTES = 8 * MIB;

const serve = (t: TestContext, store: string) =>
  serveMemory(t, store, { server: { limits: { body: "16MiB" } }, observability: { sample: 0 } });

type Service = Awaited<ReturnType<typeof serve>>;

const say = ({ data }: Service, conversationId: string, content: string) =>
  data("POST", "/save-messages", { userId: conversationId, conversationId, messages: [{ role: "user", content }] });

async function createConversations({ data }: Service): Promise<void> {
  for (const id of ["before", "victim", "behind"])
    await data("POST", "/conversations", { userId: id, conversationId: id, resourceId: "desk" });
}

async function saveLarge(service: Service): Promise<void> {
  for (let n = 0; n < LARGE; n++) await say(service, n % 2 === 0 ? "before" : "behind", "x".repeat(LARGE_BYTES));
}

async function saveSmall(service: Service): Promise<void> {
  for (let n = 0; n < SAVES; n++) await say(service, "victim", `message ${n}`);
}

test("store sqlite: POST /api/memory/save-messages reads no more of the file beside another user's messages of 8 MiB than alone", {
  skip: process.platform === "linux" ? false : "Linux tells what a process reads",
}, async (t) => {
  const service = await serve(t, `sqlite:${join(await temporaryFolder(t), "large.db")}`);
  const read = () => Number(/rchar: (\d+)/.exec(readFileSync("/proc/self/io", "utf8"))?.[1]);
  const readBy = async (work: () => Promise<unknown>): Promise<number> => {
    const before = read();
    await work();
    return read() - before;
  };
  await createConversations(service);
  const alone = await readBy(() => saveSmall(service));
  await saveLarge(service);
  const beside = await readBy(() => saveSmall(service));
  assert.ok(beside < alone * 1.1 + MIB, `${beside} bytes beside large messages, ${alone} alone`);
  const listed = await readBy(() => service.data("GET", "/conversations?resourceId=desk&userId=before"));
  assert.ok(listed < MIB, `${listed} bytes for a list of conversations`);
});

test("store postgres: POST /api/memory/save-messages reads no more blocks beside another user's messages of 8 MiB than alone", {
  skip: server === null ? NO_POSTGRES : false,
}, async (t) => {
  const url = await server!.createDatabase(t);
  /** Blocks that were asked for, whether they were in memory or not. Sessions tell at the latest when they end. */
  const blocksBy = async (work: (service: Service) => Promise<void>): Promise<number> => {
    const service = await serve(t, url);
    const before = await blocks();
    await work(service);
    await service.stop();
    return (await blocks()) - before;
  };
  const blocks = async (): Promise<number> => {
    const [row] = await server!.query(
      `SELECT sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)
         + coalesce(toast_blks_read + toast_blks_hit + tidx_blks_read + tidx_blks_hit, 0))::text AS blocks
       FROM pg_statio_user_tables`,
      url,
    );
    return Number(row!.blocks);
  };
  await blocksBy(createConversations);
  // The blocks that the server reads by itself, whenever it comes to look after these tables, are counted too.
  await server!.query(
    `DO $$ DECLARE name regclass; BEGIN FOR name IN SELECT relid FROM pg_stat_user_tables LOOP
       EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off, toast.autovacuum_enabled = off)', name);
     END LOOP; END $$`,
    url,
  );
  const alone = await blocksBy(saveSmall);
  const large = await blocksBy(saveLarge);
  // A service also reads by the clock: the slower the machine is just then, the more.
  let beside = Number.POSITIVE_INFINITY;
  for (let tries = 0; tries < 4 && beside >= alone * 1.1; tries++) beside = Math.min(beside, await blocksBy(saveSmall));
  assert.ok(alone > SAVES && large > LARGE, `the server counts: ${alone} and ${large} blocks`);
  assert.ok(beside < alone * 1.1, `${beside} blocks beside large messages, ${alone} alone`);
});
