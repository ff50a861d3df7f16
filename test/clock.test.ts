/** A service whose machine has a wrong clock: one that is set back while it runs, and one that nobody has set. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pathToFileURL } from "node:url";
import { PENSTOCK, ROOT, serve } from "./support/command-line.ts";
import { temporaryFolder } from "./support/memory.ts";
import { EXAMPLES } from "./support/plugin-folder.ts";
import type { Loose } from "./support/served-upstream.ts";
import { manifestWith } from "./support/service.ts";

const HOUR = 3_600_000;
const JSON_TYPE = { "content-type": "application/json" };
const MANIFEST = manifestWith(
  { memory: "default", tools: ["sum"] },
  {
    store: "sqlite:data/test.db",
    memory: { default: { workingMemory: {}, semantic: { embedding: "local/hash" } } },
    tools: { sum: { use: "add" } },
    workflows: {
      flow: { steps: [{ id: "one", andThen: { set: { n: 1 } } }] },
      asking: {
        steps: [
          { id: "ask", andThen: { suspend: { reason: "Approval needed" } } },
          { id: "end", andThen: { set: { n: 1 } } },
        ],
      },
    },
  },
);

async function served(t: TestContext) {
  const cwd = await temporaryFolder(t);
  await writeFile(join(cwd, "service.yaml"), JSON.stringify(MANIFEST));
  const preload = pathToFileURL(join(ROOT, "test/support/set-clock.mjs")).href;
  /** @param ahead milliseconds that the clock differs from ours */
  return async (ahead: number) => {
    const env = { CLOCK_AHEAD: String(ahead), NODE_ENV: "development" };
    const args = ["--import", preload, PENSTOCK, "serve", "--port", "0", "--plugins", EXAMPLES] as const;
    const service = await serve(t, [process.execPath, ...args], { cwd, env });
    const call = async (method: string, path: string, body?: unknown): Promise<Loose> => {
      const init = body === undefined ? {} : { headers: JSON_TYPE, body: JSON.stringify(body) };
      const reply = await fetch(service.url + path, { method, ...init });
      const { data, error } = (await reply.json()) as Loose;
      assert.ok(reply.ok, `${method} ${path}: ${reply.status} ${error}`);
      return data;
    };
    const say = (input: string) =>
      call("POST", "/agents/assistant/text", { input, options: { memory: { userId: "ada", conversationId: "c" } } });
    const setBack = async () => {
      const from = service.stdout().length;
      service.child.kill("SIGUSR2");
      await service.says(/the clock is -?\d+ ms ahead/, from);
    };
    return { ...service, call, say, setBack };
  };
}

const textOf = ({ parts }: Loose): string => parts.find(({ type }: Loose) => type === "text").text;
const ascending = (times: string[]) => assert.deepEqual(times, times.toSorted());

test("POST /agents/:id/text keeps a conversation in order while the clock is set back, and after a restart with an earlier one", async (t) => {
  const start = await served(t);
  const first = await start(0);
  await first.say("one");
  const { conversation: before } = await first.call("GET", "/api/memory/conversations/c");
  await first.setBack();
  await first.say("two");
  await first.interrupt();
  const second = await start(-2 * HOUR);
  await second.say("three");
  const message = { role: "user", parts: [{ type: "text", text: "four" }] };
  await second.call("POST", "/api/memory/save-messages", { userId: "ada", conversationId: "c", messages: [message] });
  await second.say("five");

  const { conversation, messages } = await second.call("GET", "/api/memory/conversations/c/messages");
  const users = messages.filter(({ role }: Loose) => role === "user");
  assert.deepEqual(users.map(textOf), ["one", "two", "three", "four", "five"]);
  assert.deepEqual(
    messages.map(({ role }: Loose) => role),
    ["user", "assistant", "user", "assistant", "user", "assistant", "user", "user", "assistant"],
  );
  ascending(messages.map(({ createdAt }: Loose) => createdAt));
  ascending([before.updatedAt, conversation.updatedAt]);
  const last = encodeURIComponent(messages.at(-1).createdAt);
  const page = await second.call("GET", `/api/memory/conversations/c/messages?before=${last}`);
  const earlier = messages.filter(({ createdAt }: Loose) => createdAt < messages.at(-1).createdAt);
  assert.deepEqual(page.messages, earlier);

  const { entries } = await second.call("GET", "/agents/assistant/history?limit=100");
  for (const { startTime, endTime } of entries) ascending([startTime, endTime]);
});

test("POST .../executions/:executionId/resume after the clock was set back leaves no time of the execution before an earlier one", async (t) => {
  const start = await served(t);
  const first = await start(0);
  await first.call("POST", "/workflows/asking/execute", { input: 1, options: { executionId: "x" } });
  await first.interrupt();
  const second = await start(-HOUR);
  await second.call("POST", "/workflows/asking/executions/x/resume", {});
  const state = await second.call("GET", "/workflows/asking/executions/x/state");
  assert.equal(state.status, "completed");
  const times = JSON.stringify(state).match(/\d{4}-\d\d-\d\dT[\d:.]+Z/g) ?? [];
  assert.ok(times.length > 0);
  for (const time of times) ascending([state.startAt ?? state.createdAt, time]);
});

test("a service whose clock stands before 1970 answers, stores and finds like any other, with times of 1970", async (t) => {
  const start = await served(t);
  const { call, say, url } = await start(-Date.now() - 24 * HOUR);
  await say("one");
  await say("two");
  const { messages } = await call("GET", "/api/memory/conversations/c/messages");
  assert.deepEqual(messages.filter(({ role }: Loose) => role === "user").map(textOf), ["one", "two"]);
  for (const { createdAt } of messages) assert.match(createdAt, /^1970-01-01T00:00:/);
  await call("POST", "/api/memory/conversations/c/clone", { newConversationId: "copy" });
  await call("POST", "/api/memory/conversations/c/working-memory", { content: "likes tea" });
  await call("PATCH", "/api/memory/conversations/c", { title: "Later" });
  assert.ok((await call("GET", "/api/memory/search?searchQuery=one&userId=ada")).count > 0);
  assert.equal((await call("GET", "/api/memory/conversations?userId=ada")).total, 2);
  await call("POST", "/workflows/flow/execute", { input: 1 });
  await call("POST", "/workflows/asking/execute", { input: 1, options: { executionId: "x" } });
  await call("POST", "/workflows/asking/executions/x/resume", {});
  await call("POST", "/tools/sum/execute", { input: { a: 1, b: 2 } });
  assert.ok((await call("GET", "/workflows/executions")).length >= 2);
  assert.equal((await call("GET", "/agents/assistant/history")).total, 2);
  await call("GET", "/observability/traces");
  const text = { role: "ROLE_USER", messageId: "m", parts: [{ text: "hello" }] };
  const params = { message: text };
  const reply = await fetch(`${url}/a2a/assistant`, {
    method: "POST",
    headers: { ...JSON_TYPE, "a2a-version": "1.0" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "SendMessage", params }),
  });
  const { result, error } = (await reply.json()) as Loose;
  assert.equal(error, undefined, JSON.stringify(error));
  assert.match(result.task.id, /^\w+-/);
});
