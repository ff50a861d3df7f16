/** A whole service on PostgreSQL: what clients and probes see while the server is away, and what is there afterwards. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { A2aCaller, now, said } from "../support/a2a.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";

const server = await startPostgres();
const skip = server === null ? NO_POSTGRES : server.stop === null ? "the server is not ours to stop" : false;
const db = server as PostgresServer;

after(() => server?.close());

const OPTIONS = { memory: { conversationId: "talk", userId: "ann" } };
const URL_OF_MESSAGES = "/api/memory/conversations/talk/messages?userId=ann";

async function textsOf(service: TestService): Promise<unknown[]> {
  const { data } = (await (await service.get(URL_OF_MESSAGES)).json()) as {
    data: { messages: { role: string; parts: { type: string; text?: string }[] }[] };
  };
  return data.messages.map(({ role, parts }) => [role, parts.find(({ type }) => type === "text")?.text]);
}

test("POST /agents/:id/text with memory on PostgreSQL: 503 while the server is away, and nothing is lost", {
  skip,
}, async (t) => {
  const store = await db.createDatabase(t);
  const manifest = manifestWith({ memory: "default" }, { store, memory: { default: {} } });
  const service = await startService(t, manifest);
  const say = (input: string) => service.post("/agents/assistant/text", { input, options: OPTIONS });
  const ready = async () => {
    const reply = await service.get("/readyz");
    return [reply.status, ((await reply.json()) as { reason?: string }).reason];
  };

  assert.equal((await say("one")).status, 200);
  assert.deepEqual(await ready(), [200, undefined]);
  const before = await textsOf(service);
  assert.deepEqual(
    before.map((message) => (message as [string])[0]),
    ["user", "assistant"],
  );

  await db.stop?.("immediate");
  try {
    for (const reply of [await say("two"), await service.get(URL_OF_MESSAGES)]) {
      assert.equal(reply.status, 503);
      assert.equal(reply.headers.get("x-error-code"), "unavailable");
      assert.ok(reply.headers.has("retry-after"));
      const { success, error } = (await reply.json()) as { success: boolean; error: string };
      assert.equal(success, false);
      // What takes the conversation first learns that the connection is gone.
      assert.match(
        error,
        /^storage is unavailable: (there is no connection to the database|the connection was lost during the commit, which may have happened)$/,
      );
    }
    assert.deepEqual(await ready(), [503, "there is no connection to the database"]);
    assert.equal((await service.get("/healthz")).status, 200);
  } finally {
    await db.start?.();
  }
  assert.deepEqual(await ready(), [200, undefined]);
  assert.deepEqual(await textsOf(service), before);
  assert.equal((await say("three")).status, 200);

  const second = await startService(t, manifest);
  const messages = await textsOf(second);
  assert.equal(messages.length, 4);
  assert.deepEqual(messages.slice(0, 2), before);
  assert.deepEqual(messages[2], ["user", "three"]);
});

test("POST /a2a/:id on PostgreSQL: one service follows, lists and cancels a task that another one works on", {
  skip: server === null ? NO_POSTGRES : false,
}, async (t) => {
  const manifest = {
    ...manifestWith({ model: "demo/slow" }, { store: await db.createDatabase(t) }),
    providers: { demo: { use: "scripted", models: { slow: { firstDelay: "60s" } } } },
  };
  const [one, two] = await Promise.all([startService(t, manifest), startService(t, manifest)]);
  const { id } = await new A2aCaller(one).send("assistant", { ...said("x"), ...now });
  const other = new A2aCaller(two);
  const { tasks } = await other.result("assistant", "ListTasks", { status: "TASK_STATE_WORKING" });
  assert.deepEqual(
    tasks.map((task: { id: string }) => task.id),
    [id],
  );
  const told = other.events("assistant", "SubscribeToTask", { id });
  const canceled = await other.result("assistant", "CancelTask", { id });
  assert.equal(canceled.status.state, "TASK_STATE_CANCELED");
  assert.equal((await told).at(-1)!.statusUpdate.status.state, "TASK_STATE_CANCELED");
  const working = () => one.service.agents.get("assistant")!.summary().status === "working";
  for (let tries = 0; working() && tries < 6_000; tries++) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(working(), false, "its agent has stopped");
  assert.deepEqual(await new A2aCaller(one).get("assistant", id), canceled);
});

test("50 requests that are 503 while PostgreSQL is away leave one line in the log for each change of its state, and none of their own", {
  skip,
}, async (t) => {
  const manifest = manifestWith({ memory: "default" }, { store: await db.createDatabase(t), memory: { default: {} } });
  const service = await startService(t, manifest);
  assert.equal((await service.get(URL_OF_MESSAGES)).status, 404);
  await db.stop!("immediate");
  try {
    const replies = await Promise.all(Array.from({ length: 50 }, () => service.get(URL_OF_MESSAGES)));
    assert.deepEqual(new Set(replies.map(({ status }) => status)), new Set([503]));
  } finally {
    await db.start!();
  }
  const about = service.log.filter(
    ({ level, msg }) => /error|warn/.test(String(level)) && /storage|PostgreSQL cannot read/.test(String(msg)),
  );
  assert.ok(about.length >= 1 && about.length <= 3, about.map(({ msg }) => msg).join("\n"));
});
