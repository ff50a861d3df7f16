/** Approvals of processes that die, and of processes that share a database. Everything is real: the processes, their deaths, the database. */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, type TestContext, test } from "node:test";
import { PENSTOCK, type Served, serve } from "../support/command-line.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { temporaryFolder } from "../support/storage.ts";

const PAY = (folder: string) => `import { appendFileSync } from "node:fs";
  export default { kind: "tool", name: "pay", approval: true, execute(input, call) {
    appendFileSync(${JSON.stringify(join(folder, "runs"))}, JSON.stringify([input.amount, call.idempotencyKey ?? null]) + "\\n");
    return { paid: input.amount }; } };`;

/** A folder with a manifest, processes that serve it, and what their tool has written down. */
async function shop(t: TestContext, store: string) {
  const folder = await temporaryFolder(t);
  mkdirSync(join(folder, "plugins/tools"), { recursive: true });
  writeFileSync(join(folder, "plugins/tools/pay.mjs"), PAY(folder));
  const workflows = { w: { steps: [{ id: "pay", andThen: { tool: "pay", input: "{{ input }}" } }] } };
  const tools = { pay: { use: "pay" } };
  const manifest = {
    name: "Test",
    version: "1.0",
    store,
    plugins: ["plugins"],
    auth: { mode: "none" },
    tools,
    workflows,
    providers: { demo: { use: "scripted", replies: [{ when: "^pay", call: { tool: "pay", input: { amount: 7 } } }] } },
    agents: { desk: { model: "demo/echo", tools: ["pay"], memory: false } },
  };
  writeFileSync(join(folder, "service.yaml"), JSON.stringify(manifest));
  const file = join(folder, "runs");
  return {
    start: () => serve(t, [process.execPath, PENSTOCK, "--port", "0"], { cwd: folder }),
    runs: (): [number, string | null][] =>
      existsSync(file)
        ? readFileSync(file, "utf8")
            .trim()
            .split("\n")
            .map((line) => JSON.parse(line))
        : [],
  };
}

const post = ({ url }: Served, path: string, body: object, headers: Record<string, string> = {}) =>
  fetch(url + path, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
const get = ({ url }: Served, path: string): Promise<Loose> => dataOf(fetch(url + path));
const pay = (process: Served, amount: number, id?: string) =>
  post(process, "/tools/pay/execute", { input: { amount } }, id === undefined ? {} : { "x-approval-id": id });

test("POST /approvals/:approvalId: a process may die between question and answer, and between answer and call", async (t) => {
  const { start, runs } = await shop(t, "sqlite:shop.db");
  const first = await start();
  const { executionId, suspension } = await dataOf(post(first, "/workflows/w/execute", { input: { amount: 1 } }));
  const { approvalId } = suspension.suspendData;
  const direct = (await pay(first, 2)).headers.get("x-approval-id")!;
  await first.interrupt("SIGKILL");

  const second = await start();
  assert.deepEqual(runs(), []);
  assert.equal((await get(second, "/approvals")).length, 2);
  await dataOf(post(second, `/approvals/${direct}`, { approved: true }));
  await dataOf(post(second, `/approvals/${approvalId}`, { approved: true }));
  await second.interrupt("SIGKILL");

  const third = await start();
  const state = () => get(third, `/workflows/w/executions/${executionId}/state`);
  await until(async () => (await state()).status === "completed", "the end of the execution");
  // A step that was interrupted may run again, under its own key.
  const keys = runs().map(([amount, key]) => `${amount} ${key}`);
  assert.deepEqual([...new Set(keys)], [`1 ${executionId}:pay`]);
  assert.equal((await dataOf(pay(third, 2, direct))).result.paid, 2);
  await third.interrupt("SIGKILL");

  const fourth = await start();
  assert.equal((await pay(fourth, 2, direct)).status, 409, "it was used before the last death");
  assert.equal(runs().filter(([amount]) => amount === 2).length, 1);
  assert.deepEqual(await get(fourth, "/approvals"), []);
});

test("POST /agents/:id/text of an agent that is not durable: a process may die behind its question, and behind the answer", async (t) => {
  const { start, runs } = await shop(t, "sqlite:shop.db");
  const first = await start();
  const { runId, approvals } = await dataOf(post(first, "/agents/desk/text", { input: "pay" }));
  await first.interrupt("SIGKILL");

  const second = await start();
  assert.equal((await get(second, `/agents/desk/runs/${runId}`)).status, "waiting");
  await dataOf(post(second, `/approvals/${approvals[0].approvalId}`, { approved: true }));
  await second.interrupt("SIGKILL");

  const third = await start();
  await until(
    async () => (await get(third, `/agents/desk/runs/${runId}`)).status === "completed",
    "the end of the run",
  );
  // A call that was interrupted runs again, under its own key.
  const keys = runs().map(([amount, key]) => `${amount} ${key}`);
  assert.deepEqual([...new Set(keys)], [`7 ${runId}:1:${approvals[0].toolCallId}`]);
});

test("POST /v1/responses and /v1/chat/completions with an Idempotency-Key: a process may die behind its question, and behind the answer; the same key finds the run that asked", async (t) => {
  const { start, runs } = await shop(t, "sqlite:shop.db");
  const first = await start();
  const { id } = (await (await post(first, "/v1/responses", { model: "desk", input: "pay" })).json()) as Loose;
  const key = { "idempotency-key": "one" };
  const body = { model: "desk", messages: [{ role: "user", content: "pay" }] };
  const said = (await (await post(first, "/v1/chat/completions", body, key)).json()) as Loose;
  await first.interrupt("SIGKILL");

  const second = await start();
  const again = await post(second, "/v1/chat/completions", body, key);
  assert.deepEqual(await again.json(), said);
  const asked: Loose[] = await get(second, "/approvals");
  assert.deepEqual(
    asked.map(({ runId }) => runId).sort(),
    [id.slice("resp_".length), said.id.slice("chatcmpl-".length)].sort(),
  );
  for (const { approvalId } of asked) await dataOf(post(second, `/approvals/${approvalId}`, { approved: true }));
  await second.interrupt("SIGKILL");

  const third = await start();
  const read = async () => ((await (await fetch(`${third.url}/v1/responses/${id}`)).json()) as Loose).output;
  await until(async () => JSON.stringify(await read()).includes("paid"), "the end of the response");
  for (const { runId } of asked)
    await until(
      async () => (await get(third, `/agents/desk/runs/${runId}`)).status === "completed",
      "the end of a run",
    );
  assert.deepEqual([...new Set(runs().map(([, k]) => k))].length, 2, "each call runs under its own key");
});

const server = await sharedPostgres();
after(() => server?.close());

test("POST /approvals/:approvalId: of processes on one PostgreSQL any one takes the answer, and one call runs", {
  skip: server === null && NO_POSTGRES,
}, async (t) => {
  const { start, runs } = await shop(t, await server!.createDatabase(t));
  const [one, other] = await Promise.all([start(), start()]);
  const { executionId, suspension } = await dataOf(post(one, "/workflows/w/execute", { input: { amount: 1 } }));
  await dataOf(post(other, `/approvals/${suspension.suspendData.approvalId}`, { approved: true }));
  const state = () => get(one, `/workflows/w/executions/${executionId}/state`);
  await until(async () => (await state()).status === "completed", "the end of the execution");
  assert.deepEqual(runs(), [[1, `${executionId}:pay`]]);

  const asked = await Promise.all([one, other, one, other].map((process) => pay(process, 2)));
  const ids = new Set(asked.map(({ headers }) => headers.get("x-approval-id")));
  assert.equal(ids.size, 1, "one call is one question");
  const [id] = ids;
  const said = Array.from({ length: 12 }, (_, index) => index % 3 !== 0);
  const answers = await Promise.all(
    said.map((approved, index) => post(index % 2 === 0 ? one : other, `/approvals/${id}`, { approved })),
  );
  const heard = new Set(said.filter((_, index) => answers[index]!.status === 200));
  assert.equal(heard.size, 1, "one answer is the decision");
  const calls = await Promise.all(Array.from({ length: 20 }, (_, index) => pay(index % 2 === 0 ? one : other, 2, id!)));
  const ran = heard.has(true) ? 1 : 0;
  assert.equal(calls.filter(({ status }) => status === 200).length, ran);
  assert.equal(runs().filter(([amount]) => amount === 2).length, ran);
});
