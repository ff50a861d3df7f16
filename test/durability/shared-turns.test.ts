/** One turn at a time in a conversation that two real processes work on, over one PostgreSQL. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Served } from "../support/command-line.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { holdingFolder, twoProcesses } from "../support/two-processes.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;

/** A model that notes what it is asked, says `...`, and answers with all that the user has said once no file of the question's name is there. */
const FILED = `import { appendFileSync, existsSync } from "node:fs";
export default { kind: "provider", name: "filed",
  config: { type: "object", properties: { folder: { type: "string" } } },
  create: ({ folder }) => ({ retries: 0,
    languageModel: (id) => ({ specificationVersion: "v3", provider: "filed", modelId: id, supportedUrls: {},
      doStream: async ({ prompt, abortSignal }) => {
        const said = prompt.filter(({ role }) => role === "user").map(({ content }) => content.map(({ text }) => text).join(""));
        const question = said.at(-1);
        appendFileSync(folder + "/asked", question + "\\n");
        const zero = { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 };
        const parts = [{ type: "stream-start", warnings: [] }, { type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: "..." }];
        const rest = [{ type: "text-delta", id: "t", delta: said.join("|") }, { type: "text-end", id: "t" },
          { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage: { inputTokens: zero, outputTokens: { total: 1, text: 1, reasoning: 0 } } }];
        return { stream: new ReadableStream({ async pull(controller) {
          const part = parts.shift();
          if (part !== undefined) return controller.enqueue(part);
          while (existsSync(folder + "/" + question) && !abortSignal?.aborted) await new Promise((resolve) => setTimeout(resolve, 10));
          if (abortSignal?.aborted) return controller.error(abortSignal.reason);
          const next = rest.shift();
          if (next === undefined) controller.close(); else controller.enqueue(next);
        } }) };
      } }) }) };`;

const { folder, hold, release } = await holdingFolder();
/** So many that deleting a conversation with their threads takes a while. */
const subAgents = Array.from({ length: 60 }, (_, index) => `sub-${index}`);
const sub = { description: "Helps", model: "filed/any", memory: "patient" };
const { url, start, one, other } = await twoProcesses(server, folder, {
  plugins: { "providers/filed.mjs": FILED },
  providers: { filed: { use: "filed", folder } },
  memory: { patient: { contextLimit: 1000 }, eager: { turns: "interrupt" } },
  agents: {
    ...Object.fromEntries(subAgents.map((id) => [id, { ...sub, name: id }])),
    wide: { model: "filed/any", memory: "patient", subAgents },
    patient: { model: "filed/any", memory: "patient" },
    eager: { model: "filed/any", memory: "eager" },
  },
});

const asked = () =>
  existsSync(join(folder, "asked")) ? readFileSync(join(folder, "asked"), "utf8").trim().split("\n") : [];
const isAsked = (question: string) => until(() => asked().includes(question), `that the model is asked ${question}`);

const say = (to: Served, agent: string, conversationId: string, input: string) =>
  fetch(`${to.url}/agents/${agent}/text`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ input, options: { memory: { userId: "ada", conversationId } } }),
  });

async function history(agentId: string, id: string): Promise<string[]> {
  const reply = await fetch(`${other.url}/api/memory/conversations/${id}/messages?limit=1000&agentId=${agentId}`);
  const { messages } = await dataOf(reply);
  return messages.map(({ role, parts }: Loose) => `${role}: ${parts.map((part: Loose) => part.text ?? "").join("")}`);
}

/** Requests that a process has not answered yet. */
async function inFlight({ url }: Served): Promise<number> {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  return Number(/^penstock_http_requests_in_flight (\d+)/m.exec(metrics)?.[1]);
}

/** The rows that say whose turn it is. */
const claims = () => server!.query("SELECT key FROM penstock WHERE key LIKE 'ct/%' OR key LIKE 'cs/%'", url);

test("POST /agents/:id/text waits for a turn of the conversation that another process has, and is told what it said", {
  skip,
}, async () => {
  hold("a1");
  const first = say(one, "patient", "a", "a1");
  await isAsked("a1");
  const second = say(other, "patient", "a", "a2");
  await until(async () => (await claims()).length === 1, "the row of the first");
  assert.equal((await say(other, "patient", "free", "f1")).status, 200);
  assert.ok(!asked().includes("a2"));
  release("a1");
  assert.deepEqual([(await first).status, (await second).status], [200, 200]);
  assert.deepEqual(await history("patient", "a"), ["user: a1", "assistant: ...a1", "user: a2", "assistant: ...a1|a2"]);
  assert.deepEqual(await claims(), []);
});

test("POST /agents/:id/text with memory.turns: interrupt cancels the turn that another process has", {
  skip,
}, async () => {
  hold("b1");
  const first = say(one, "eager", "b", "b1");
  await isAsked("b1");
  assert.equal((await say(other, "eager", "b", "b2")).status, 200);
  assert.equal((await first).status, 409);
  release("b1");
  assert.deepEqual(await history("eager", "b"), ["user: b1", "assistant: ...", "user: b2", "assistant: ...b1|b2"]);
  assert.deepEqual(await claims(), []);
});

test("POST /agents/:id/text, 50 at once on one conversation of two processes, gives a history of whole turns, each told of all before it", {
  skip,
}, async () => {
  const inputs = Array.from({ length: 50 }, (_, index) => `q${index}`);
  await Promise.all(
    inputs.map(async (input, index) => {
      for (;;) {
        const reply = await say(index % 2 === 0 ? one : other, "patient", "q", input);
        await reply.text();
        if (reply.status === 200) return;
        assert.equal(reply.status, 409);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }),
  );
  const messages = await history("patient", "q");
  const questions: string[] = [];
  for (let index = 0; index < messages.length; index += 2) {
    questions.push(/^user: (q\d+)$/.exec(messages[index]!)![1]!);
    assert.equal(messages[index + 1], `assistant: ...${questions.join("|")}`);
  }
  assert.deepEqual(questions.sort(), inputs.sort());
  assert.deepEqual(await claims(), []);
});

test("DELETE /api/memory/conversations/:id cancels the turns at work and in the queue of both processes, and nothing comes back", {
  skip,
}, async () => {
  for (const isFirst of [true, false]) {
    const id = isFirst ? "gone-1" : "gone-2";
    if (!isFirst) assert.equal((await say(one, "patient", id, `${id}-before`)).status, 200);
    hold(`${id}-a`);
    const first = say(one, "patient", id, `${id}-a`);
    await isAsked(`${id}-a`);
    const before = [await inFlight(one), await inFlight(other)];
    const waiting = [say(one, "patient", id, `${id}-b`), say(other, "patient", id, `${id}-c`)];
    await until(async () => (await inFlight(one)) > before[0]! && (await inFlight(other)) > before[1]!, "both");
    // The one in the other process has looked once.
    await sleep(300);
    const deleted = await fetch(`${other.url}/api/memory/conversations/${id}?userId=ada&agentId=patient`, {
      method: "DELETE",
    });
    assert.equal(deleted.status, 200);
    const replies = await Promise.all([first, ...waiting]);
    for (const reply of replies) {
      assert.equal(reply.status, 409);
      assert.match(await reply.text(), /the conversation has been deleted/);
    }
    release(`${id}-a`);
    const found = await fetch(`${one.url}/api/memory/conversations/${id}?agentId=patient`);
    assert.equal(found.status, 404);
    assert.deepEqual(
      asked().filter((question) => question.startsWith(`${id}-`)),
      isFirst ? [`${id}-a`] : [`${id}-before`, `${id}-a`],
    );
    assert.equal((await say(one, "patient", id, `${id}-later`)).status, 200);
    assert.equal((await history("patient", id)).length, 2);
    await until(async () => (await claims()).length === 0, "that no row is left");
  }
});

const post = (to: Served, path: string, body: object) =>
  fetch(to.url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

test("DELETE /api/memory/conversations/:id cancels a background run of another process", { skip }, async () => {
  hold("kept-1");
  const options = { background: true, memory: { userId: "ada", conversationId: "kept" } };
  const begun = await post(one, "/agents/patient/text", { input: "kept-1", options });
  const runId = begun.headers.get("x-run-id");
  await isAsked("kept-1");
  const path = "/api/memory/conversations/kept?userId=ada&agentId=patient";
  assert.equal((await fetch(other.url + path, { method: "DELETE" })).status, 200);
  const status = async () => (await dataOf(fetch(`${one.url}/agents/patient/runs/${runId}?userId=ada`))).status;
  await until(async () => (await status()) !== "running", "the end of the run");
  assert.equal(await status(), "cancelled");
  release("kept-1");
  assert.equal((await fetch(one.url + path)).status, 404);
});

for (const isSame of [true, false])
  test(`POST /agents/:id/text while ${isSame ? "its own" : "another"} process deletes the conversation begins when that is done, and is told nothing of it`, {
    skip,
  }, async () => {
    const id = `race-${isSame}`;
    assert.equal((await say(one, "wide", id, "secret")).status, 200);
    hold(`${id}-new`);
    const path = `/api/memory/conversations/${id}?userId=ada&agentId=wide`;
    // The threads of all sub-agents are deleted one after the other.
    const deleted = fetch(one.url + path, { method: "DELETE" });
    await sleep(10);
    const reply = say(isSame ? one : other, "wide", id, `${id}-new`);
    assert.equal((await deleted).status, 200);
    await Promise.race([isAsked(`${id}-new`), reply]);
    release(`${id}-new`);
    // One that was there before the deletion is cancelled by it.
    if ((await reply).status === 409) return;
    assert.equal((await dataOf(reply)).text, `...${id}-new`);
    assert.deepEqual(await history("wide", id), [`user: ${id}-new`, `assistant: ...${id}-new`]);
  });

const STEPS = { conversationPersistence: { mode: "step", debounceMs: 0 } };

for (const stepwise of [false, true])
  test(`POST /api/memory/messages/delete: a message that another process answers is not stored by its turn (${stepwise ? "stored in steps" : "stored at its end"})`, {
    skip,
  }, async () => {
    const id = `dropped-${stepwise}`;
    hold(`${id}-1`);
    assert.equal((await say(one, "patient", id, `${id}-0`)).status, 200);
    const input = [{ id: `${id}-u`, role: "user", parts: [{ type: "text", text: `${id}-1` }] }];
    const memory = { userId: "ada", conversationId: id, options: stepwise ? STEPS : {} };
    const first = post(one, "/agents/patient/text", { input, options: { memory } });
    await isAsked(`${id}-1`);
    const body = { userId: "ada", conversationId: id, messageIds: [`${id}-u`] };
    assert.equal((await post(other, "/api/memory/messages/delete?agentId=patient", body)).status, 200);
    release(`${id}-1`);
    assert.equal((await first).status, 200);
    assert.deepEqual(await history("patient", id), [
      `user: ${id}-0`,
      `assistant: ...${id}-0`,
      `assistant: ...${id}-0|${id}-1`,
    ]);
    assert.ok(!(await claims()).some(({ key }: Loose) => key.includes(id)));
  });

test("POST /agents/:id/text stores nothing and is 503 when another process was given its turn meanwhile", {
  skip,
}, async () => {
  hold("g1");
  const lost = say(one, "patient", "g", "g1");
  await isAsked("g1");
  await server!.query(
    "UPDATE penstock SET value = '[\"another\",\"run\"]', revision = revision + 1000000 WHERE key LIKE 'ct/%'",
    url,
  );
  release("g1");
  assert.equal((await lost).status, 503);
  assert.equal((await say(other, "patient", "g", "g2")).status, 200, "the other process is gone");
  assert.deepEqual(await history("patient", "g"), ["user: g2", "assistant: ...g2"]);
});

test("POST /agents/:id/text goes on with a conversation whose turn a process had that was killed", {
  skip,
}, async () => {
  hold("c1");
  hold("d1");
  say(one, "patient", "c", "c1").catch(() => {});
  say(one, "eager", "d", "d1").catch(() => {});
  await Promise.all([isAsked("c1"), isAsked("d1")]);
  const waiting = [say(other, "patient", "c", "c2"), say(other, "eager", "d", "d2")];
  await one.interrupt("SIGKILL");
  const statuses = (await Promise.all(waiting)).map(({ status }) => status);
  assert.deepEqual(statuses, [200, 200]);
  assert.deepEqual((await history("patient", "c")).slice(-2), ["user: c2", "assistant: ...c2"]);
  assert.deepEqual(await claims(), []);
});

test("POST /agents/:id/text in a process that is killed leaves no row of its turn, although nobody asks for the conversation", {
  skip,
}, async () => {
  hold("e1");
  const third = await start();
  say(third, "patient", "e", "e1").catch(() => {});
  await isAsked("e1");
  assert.equal((await claims()).length, 1);
  await third.interrupt("SIGKILL");
  await until(async () => (await claims()).length === 0, "that the row goes");
});
