/** Kept runs of agents at two real processes over one PostgreSQL: either may die, the other finishes. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import pg from "pg";
import { decodeNumber } from "../../core/storage/encoding.ts";
import { executionKey } from "../../core/storage/keys.ts";
import { LAYOUT_VERSION } from "../../core/storage/layout.ts";
import { tableOf } from "../../core/storage/postgres-names.ts";
import type { Served } from "../support/command-line.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { parseEvents } from "../support/service.ts";
import { holdingFolder, twoProcesses } from "../support/two-processes.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
const { folder, hold, release } = await holdingFolder();

/** Notes its calls, and waits while a file of the given name is there. */
const LINGER = `import { appendFileSync, existsSync } from "node:fs";
export default { kind: "tool", name: "linger", description: "Waits", execute: async ({ name }, { idempotencyKey }) => {
  appendFileSync(${JSON.stringify(join(folder, "calls"))}, name + " " + idempotencyKey + "\\n");
  while (existsSync(${JSON.stringify(`${folder}/`)} + name)) await new Promise((resolve) => setTimeout(resolve, 10));
  return { name };
} };`;
const { url, one, other } = await twoProcesses(server, folder, {
  plugins: { "tools/linger.mjs": LINGER },
  tools: { linger: { use: "linger" }, asked: { use: "linger", approval: true } },
  providers: {
    demo: {
      use: "scripted",
      replies: [
        { when: "ask (\\w+)", call: { tool: "asked", input: { name: "{{ match[1] }}" } } },
        { when: "(\\w+)", call: { tool: "linger", input: { name: "{{ match[1] }}" } } },
      ],
    },
  },
  agents: { clerk: { model: "demo/echo", tools: ["linger", "asked"], memory: false, durable: true } },
});

const calls = (name: string) =>
  (existsSync(join(folder, "calls")) ? readFileSync(join(folder, "calls"), "utf8") : "")
    .split("\n")
    .filter((line) => line.startsWith(`${name} `));
const post = (to: Served, path: string, body: object, headers: Record<string, string> = {}) =>
  fetch(to.url + path, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
async function begin(to: Served, input: string): Promise<string> {
  const reply = await post(to, "/agents/clerk/text", { input, options: { background: true } });
  assert.equal(reply.status, 202, await reply.clone().text());
  return ((await reply.json()) as Loose).data.runId;
}
const runOf = (to: Served, id: string): Promise<Loose> => dataOf(fetch(`${to.url}/agents/clerk/runs/${id}`));
const comesTo = (to: Served, id: string, status: string) =>
  until(async () => (await runOf(to, id)).status === status, `the status ${status}`);

test("POST /approvals/:approvalId at one process lets a run go on that waits since another began it", {
  skip,
}, async () => {
  const id = await begin(one, "ask a");
  await comesTo(other, id, "waiting");
  const [{ approvalId }] = (await runOf(other, id)).approvals;
  await dataOf(post(other, `/approvals/${approvalId}`, { approved: true }));
  await comesTo(one, id, "completed");
  assert.equal(calls("a").length, 1);
});

test("POST /agents/:id/runs/:runId/cancel at one process stops a run of another", { skip }, async () => {
  hold("b");
  const id = await begin(one, "b");
  await until(() => calls("b").length === 1, "the call");
  assert.deepEqual(await dataOf(post(other, `/agents/clerk/runs/${id}/cancel`, {})), { cancelled: true });
  assert.equal((await runOf(one, id)).status, "cancelled");
  release("b");
});

test("POST /agents/:id/stream with one Idempotency-Key at two processes at once is one run, which both read", {
  skip,
}, async () => {
  const replies = await Promise.all(
    [one, other, one, other].map((to) => post(to, "/agents/clerk/stream", { input: "c" }, { "idempotency-key": "c" })),
  );
  const all = await Promise.all(replies.map(async (reply) => parseEvents(await reply.text())));
  for (const events of all) assert.deepEqual(events, all[0]);
  assert.match(all[0]!.at(-1)!.data, /"finish"/);
  assert.equal(calls("c").length, 1);
});

test("POST /agents/:id/text of a kept run whose number an execution has had since the database was restored: the run has its own result", {
  skip,
}, async () => {
  const table = tableOf(LAYOUT_VERSION);
  const database = new pg.Pool({ connectionString: url!, max: 1 });
  try {
    const { rows } = await database.query({ text: `SELECT key FROM ${table} WHERE key LIKE 'x/%/r'` });
    // Both processes have a block of numbers. Those that come next in either are taken.
    const text = `INSERT INTO ${table} VALUES ($1, 'of another', 1) ON CONFLICT DO NOTHING`;
    for (const { key } of rows) {
      const number = decodeNumber(String(key).split("/")[1]!);
      for (const next of [1, 2, 3]) await database.query({ text, values: [executionKey(number + next)] });
    }
    const reply = await post(one, "/agents/clerk/text", { input: "f" });
    assert.equal(reply.status, 200, await reply.clone().text());
    assert.deepEqual(((await reply.json()) as Loose).data.toolResults[0].output, { name: "f" });
  } finally {
    await database.query({ text: `DELETE FROM ${table} WHERE value = 'of another'` }).finally(() => database.end());
  }
});

test("GET /agents/:id/runs/:runId/stream: when the process of a run is killed, the other finishes it, and its reader there sees each part once", {
  skip,
}, async () => {
  hold("d");
  const id = await begin(one, "d");
  const waiting = await begin(one, "ask e");
  await until(() => calls("d").length === 1, "the call");
  await comesTo(other, waiting, "waiting");
  const reading = fetch(`${other.url}/agents/clerk/runs/${id}/stream`).then(async (reply) =>
    parseEvents(await reply.text()),
  );
  await one.interrupt("SIGKILL");
  release("d");
  const events = await reading;
  assert.deepEqual(
    events.map(({ id }) => Number(id)),
    events.map((_, index) => index + 1),
  );
  const types = events.map(({ data }) => JSON.parse(data).type);
  assert.equal(types.filter((type) => type === "tool-result").length, 1);
  assert.equal(types.at(-1), "finish");
  const made = calls("d");
  assert.deepEqual([made.length, new Set(made).size], [2, 1], "the call that was under way ran again with its key");
  const [{ approvalId }] = (await runOf(other, waiting)).approvals;
  await dataOf(post(other, `/approvals/${approvalId}`, { approved: true }));
  await comesTo(other, waiting, "completed");
});
