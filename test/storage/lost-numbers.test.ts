/** Two processes on one PostgreSQL whose database has lost the row that gives out numbers, as after a failover to an older copy. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import {
  CONVERSATION_SEQUENCE,
  conversationIdKey,
  decodeNumber,
  EXECUTION_SEQUENCE,
  executionKey,
} from "../../core/storage/keys.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { ran, serveApprovals } from "../support/approvals.ts";
import { checkConsistency, listed, openMemories, pageOf, rejectsAs, said, textsOf, user } from "../support/memories.ts";
import { NO_POSTGRES, type PostgresServer, sharedPostgres } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import { silent } from "../support/providers.ts";
import { dataOf } from "../support/served-upstream.ts";
import { CALL, processesOf } from "../support/workflow-process.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
after(() => server?.close());

async function database(t: TestContext) {
  const url = await (server as PostgresServer).createDatabase(t);
  return async () => {
    const store = await openPostgresStore(url, { logger: silent });
    t.after(() => store.close());
    return store;
  };
}

const LOSSES = {
  "is gone": { delete: [CONVERSATION_SEQUENCE, EXECUTION_SEQUENCE] },
  "is an older one": { put: [[CONVERSATION_SEQUENCE, "1"] as const, [EXECUTION_SEQUENCE, "1"] as const] },
};

for (const [what, loss] of Object.entries(LOSSES)) {
  test(`two processes create conversations when the row of their numbers ${what}: none shares its messages with another`, {
    skip,
  }, async (t) => {
    const store = await database(t);
    const one = await openMemories({ store: await store() });
    const create = async ({ access }: typeof one, id: string, userId: string) => {
      await access.append({ id, userId, resourceId: "desk" }, [said(`of ${id}`)]);
      await access.save([{ conversationId: id, message: said(`more of ${id}`) }]);
    };
    for (const id of ["a0", "a1", "a2"]) await create(one, id, "ada");
    await one.store.commit(loss);
    const other = await openMemories({ store: await store() });
    await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        index % 2 === 0 ? create(one, `a${index + 3}`, "ada") : create(other, `b${index + 3}`, "bob"),
      ),
    );
    const copies = await Promise.all([
      one.access.clone("a0", { newConversationId: "a0 copy", includeMessages: true }),
      other.access.clone("b4", { newConversationId: "b4 copy", includeMessages: true }),
    ]);
    assert.deepEqual(
      copies.map(({ messageCount }) => messageCount),
      [2, 2],
    );
    for (const userId of ["ada", "bob"]) {
      const page = { limit: 100, offset: 0, orderBy: "updated_at", orderDirection: "DESC", userId } as const;
      const { conversations, total } = await listed(one.access.list(page));
      assert.deepEqual([conversations.length, total], userId === "ada" ? [10, 10] : [7, 7]);
      for (const { id } of conversations) {
        const texts = [`of ${id}`, `more of ${id}`].map((text) => text.replace(" copy", ""));
        for (const { access } of [one, other]) assert.deepEqual(await textsOf(access, id), texts);
      }
    }
    await checkConsistency(one.store);
  });

  test(`two processes run workflows when the row of their numbers ${what}: each execution keeps its own result`, {
    skip,
  }, async (t) => {
    const store = await database(t);
    const start = await processesOf(t, { workflows: { w: { steps: [{ id: "s", andThen: { set: "{{ input }}" } }] } } });
    const one = await start(await store());
    t.after(() => one.opened.close());
    const run = async ({ access }: typeof one, n: number) =>
      JSON.parse((await access.execute("w", { input: { n } }, CALL)).json) as { executionId: string };
    await run(one, 0);
    await (await store()).commit(loss);
    const other = await start(await store());
    t.after(() => other.opened.close());
    const results = await Promise.all(Array.from({ length: 12 }, (_, n) => run(n % 2 === 0 ? one : other, n)));
    assert.equal(new Set(results.map(({ executionId }) => executionId.slice(0, 9))).size, 12, "numbers");
    for (const [n, { executionId }] of results.entries()) {
      for (const { access } of [one, other])
        assert.deepEqual((await access.state("w", executionId)).input, { n }, executionId);
    }
    const all = JSON.parse(await (await one.access.executions({ limit: 50, offset: 0 })).whole()) as { id: string }[];
    assert.equal(new Set(all.map(({ id }) => id)).size, 13);
  });
}

test("POST /agents/:id/text: a run that asks while its number is taken gets another, waits with what it has done, and goes on once", {
  skip,
}, async (t) => {
  const url = await (server as PostgresServer).createDatabase(t);
  const replies = [{ when: "pay (\\d+)", call: { tool: "pay", input: { amount: "{{ int(match[1]) }}" } } }];
  const service = await serveApprovals(t, {
    store: url,
    providers: { demo: { use: "scripted", replies } },
    agents: { clerk: { model: "demo/echo", tools: ["pay"], memory: false } },
  });
  const ask = (amount: number) => dataOf(service.post("/agents/clerk/text", { input: `pay ${amount}` }));
  await ask(1);
  const { store } = service.service;
  const [last] = await store.scan({ prefix: "x/", limit: 1, reverse: true });
  const number = decodeNumber(last!.key.split("/")[1]!);
  await store.commit({ put: [[executionKey(number + 1), "{}"]] });
  const { runId, approvals } = await ask(2);
  assert.equal((await dataOf(service.get(`/agents/clerk/runs/${runId}`))).status, "waiting");
  await store.commit({ delete: [executionKey(number + 1)] });
  ran.splice(0);
  await dataOf(service.post(`/approvals/${approvals[0].approvalId}`, { approved: true }));
  await until(async () => (await dataOf(service.get(`/agents/clerk/runs/${runId}`))).status === "completed", "the end");
  assert.deepEqual(ran, [2]);
});

test("a conversation whose number has become another user's: its pages, lists and saves do not show or touch that one", {
  skip,
}, async (t) => {
  const store = await database(t);
  const [one, other] = [await openMemories({ store: await store() }), await openMemories({ store: await store() })];
  await one.access.append({ id: "of ada", userId: "ada", resourceId: "desk" }, [said("ada's")]);
  await other.access.append({ id: "of bob", userId: "bob", resourceId: "desk" }, [said("bob's")]);
  const bobs = await one.store.get(conversationIdKey("default", "of bob"));
  // As two processes left it that were given one number.
  await one.store.commit({ put: [[conversationIdKey("default", "of ada"), bobs!.value]] });
  for (const { access, named } of [await openMemories({ store: await store() }), other]) {
    const ada = named("default").for(user("ada"));
    await rejectsAs(ada.messages("of ada", { limit: 10 }), "not_found");
    await rejectsAs(access.messages("of ada", { limit: 10 }), "not_found");
    await rejectsAs(access.get("of ada"), "not_found");
    await rejectsAs(access.save([{ conversationId: "of ada", message: said("more") }]), "not_found");
    await rejectsAs(access.delete("of ada"), "not_found");
  }
  const page = await pageOf(other.access, "of bob");
  assert.deepEqual([page.conversation.id, page.messages.length], ["of bob", 1]);
});
