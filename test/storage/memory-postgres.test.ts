/** Memories of two processes that share one PostgreSQL database. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { checkConsistency, openMemories, said, textsOf } from "../support/memories.ts";
import { NO_POSTGRES, type PostgresServer, sharedPostgres } from "../support/postgres.ts";
import { silent } from "../support/providers.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
after(() => server?.close());

async function twoProcesses(t: TestContext) {
  const url = await (server as PostgresServer).createDatabase();
  const open = async () => {
    const store = await openPostgresStore(url, { logger: silent });
    t.after(() => store.close());
    return openMemories({ store });
  };
  return [await open(), await open()] as const;
}

test("two processes on one PostgreSQL: parallel saves into one conversation by both lose nothing and keep each one's order", {
  skip,
}, async (t) => {
  const processes = await twoProcesses(t);
  await processes[0].access.append({ id: "c", userId: "ada", resourceId: "desk" }, []);
  await Promise.all(
    processes.map(async ({ access }, index) => {
      for (let round = 0; round < 20; round++) {
        const texts = [0, 1, 2].map((part) => `${index}:${round * 3 + part}`);
        await Promise.all(texts.map((text) => access.save([{ conversationId: "c", message: said(text) }])));
      }
    }),
  );
  const texts = await textsOf(processes[0].access, "c", { limit: 1000 });
  assert.equal(new Set(texts).size, 120);
  for (const index of [0, 1]) {
    const own = texts.filter((text) => text.startsWith(`${index}:`)).map((text) => Number(text.slice(2)));
    assert.deepEqual(
      own,
      Array.from({ length: 60 }, (_, number) => number),
    );
  }
  await checkConsistency(processes[1].store);
});

test("two processes on one PostgreSQL: creating, deleting, cloning and saving at once leaves indexes and totals that are right", {
  skip,
}, async (t) => {
  const processes = await twoProcesses(t);
  const calls = Array.from({ length: 120 }, (_, index) => {
    const { access } = processes[index % 2]!;
    const id = `c${index % 3}`;
    if (index % 7 === 5) return access.delete(id);
    if (index % 7 === 6) return access.clone(id, { includeMessages: true });
    return access.append({ id, userId: "ada", resourceId: "desk" }, [said(String(index), `m${index % 5}`)]);
  });
  for (const end of await Promise.allSettled(calls)) {
    if (end.status === "rejected") assert.match(String(end.reason), /does not exist/);
  }
  await checkConsistency(processes[0].store);
});
