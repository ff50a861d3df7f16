/** Kept runs of agents at two real processes over one PostgreSQL: either may die, the other finishes. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import pg from "pg";
import { decodeNumber, executionKey } from "../../core/storage/keys.ts";
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
const { url, one, other, start } = await twoProcesses(server, folder, {
  plugins: { "tools/linger.mjs": LINGER },
  tools: { linger: { use: "linger" }, asked: { use: "linger", approval: true } },
  providers: {
    demo: {
      use: "scripted",
      replies: [
        {
          when: "^delegate (\\w+)",
          call: { tool: "delegate_task", input: { agentId: "desk", task: "ask {{ match[1] }}" } },
        },
        { when: "ask (\\w+)", call: { tool: "asked", input: { name: "{{ match[1] }}" } } },
        { when: "(\\w+)", call: { tool: "linger", input: { name: "{{ match[1] }}" } } },
      ],
    },
  },
  agents: {
    clerk: { model: "demo/echo", tools: ["linger", "asked"], memory: false, durable: true },
    desk: { model: "demo/echo", tools: ["asked"], memory: false },
    chief: { model: "demo/echo", subAgents: ["desk"], memory: false },
  },
  mcp: { servers: { main: { agents: ["desk"], workflows: ["steps"] } } },
  workflows: {
    steps: { steps: [{ id: "ask", andThen: { tool: "asked", input: "{{ input }}" } }] },
    agents: { steps: [{ id: "ask", andAgent: { agent: "desk", prompt: "ask {{ input.name }}" } }] },
  },
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

for (const way of ["POST /approvals/:approvalId", "POST /agents/:id/chat"])
  test(`${way} at one process lets a run go on that has asked at another, of an agent that is not durable`, {
    skip,
  }, async () => {
    const name = way.includes("chat") ? "chatted" : "decided";
    const user = { role: "user", parts: [{ type: "text", text: `ask ${name}` }] };
    const asking = await post(one, "/agents/desk/chat", { messages: [user] });
    const chunk = parseEvents(await asking.text()).find(({ data }) => data.includes("tool-approval-request"));
    const { approvalId: id, toolCallId } = JSON.parse(chunk!.data);
    const [{ runId }] = ((await dataOf(fetch(`${other.url}/approvals`))) as Loose[]).filter(
      ({ approvalId }) => approvalId === id,
    );
    if (name === "decided") await dataOf(post(other, `/approvals/${id}`, { approved: true }));
    else {
      const part = { type: "tool-asked", toolCallId, state: "approval-responded", input: { name } };
      const answer = { ...part, approval: { id, approved: true } };
      const messages = [user, { id: "a1", role: "assistant", parts: [{ type: "step-start" }, answer] }];
      const reply = await post(other, "/agents/desk/chat", { messages });
      assert.equal(reply.headers.get("x-run-id"), runId);
      assert.match(await reply.text(), /tool-output-available.*"finishReason":"stop"/s);
    }
    await until(
      async () => (await dataOf(fetch(`${one.url}/agents/desk/runs/${runId}`))).status === "completed",
      "the end",
    );
    assert.equal(calls(name).length, 1);
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

const respond = async (to: Served, path: string, body?: object): Promise<Loose> =>
  (await (body === undefined ? fetch(`${to.url}/v1/responses${path}`) : post(to, `/v1/responses${path}`, body))).json();
const inBackground = (to: Served, input: string) => respond(to, "", { model: "clerk", input, background: true });

test("POST /v1/responses/:id/cancel and DELETE /v1/responses/:id at one process stop a response in the background of another", {
  skip,
}, async () => {
  for (const [name, stop] of [
    ["f", (id: string) => respond(other, `/${id}/cancel`, {})],
    ["g", (id: string) => fetch(`${other.url}/v1/responses/${id}`, { method: "DELETE" })],
  ] as const) {
    hold(name);
    const { id } = await inBackground(one, name);
    await until(() => calls(name).length === 1, "the call");
    assert.equal((await respond(other, `/${id}`)).status, "in_progress");
    await stop(id);
    const left = await respond(one, `/${id}`);
    assert.equal(left.status ?? left.error.code, name === "f" ? "cancelled" : "not_found");
    assert.equal((await runOf(one, id.slice("resp_".length))).status, "cancelled");
    release(name);
  }
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

test("GET /agents/:id/runs/:runId/stream: when the process of a run is killed, the other finishes it, and its reader there sees each part once; so it is with a response in the background", {
  skip,
}, async () => {
  hold("d");
  hold("h");
  const id = await begin(one, "d");
  const response = await inBackground(one, "h");
  const waiting = await begin(one, "ask e");
  await until(() => calls("d").length === 1 && calls("h").length === 1, "the calls");
  const following = fetch(`${other.url}/v1/responses/${response.id}?stream=true`).then((reply) => reply.text());
  await comesTo(other, waiting, "waiting");
  const reading = fetch(`${other.url}/agents/clerk/runs/${id}/stream`).then(async (reply) =>
    parseEvents(await reply.text()),
  );
  await one.interrupt("SIGKILL");
  release("d");
  release("h");
  const whole = parseEvents(await following).map(({ data }) => data);
  assert.equal(whole.pop(), "[DONE]");
  const numbers = whole.map((data) => JSON.parse(data).sequence_number);
  assert.deepEqual(
    numbers,
    numbers.map((_, index) => index),
  );
  const ended = await respond(other, `/${response.id}`);
  assert.deepEqual(JSON.parse(whole.at(-1)!).response, ended);
  assert.deepEqual([ended.status, ended.output[0].output], ["completed", { name: "h" }]);
  assert.equal(new Set(calls("h")).size, 1);
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

/** Asks a person for the call of this name. */
const DOORS: Readonly<Record<string, (to: Served, name: string) => Promise<Response>>> = {
  text: (to, name) => post(to, "/agents/desk/text", { input: `ask ${name}` }),
  stream: (to, name) => post(to, "/agents/desk/stream", { input: `ask ${name}` }),
  chat: (to, name) => post(to, "/agents/desk/chat", { input: `ask ${name}` }),
  agui: (to, name) => {
    const messages = [{ id: "u1", role: "user", content: `ask ${name}` }];
    return post(to, "/agents/desk/ag-ui", { threadId: name, runId: name, messages });
  },
  subAgent: (to, name) => post(to, "/agents/chief/text", { input: `delegate ${name}` }),
  completions: (to, name) =>
    post(to, "/v1/chat/completions", { model: "desk", messages: [{ role: "user", content: `ask ${name}` }] }),
  responses: (to, name) => post(to, "/v1/responses", { model: "desk", input: `ask ${name}` }),
  background: (to, name) => post(to, "/v1/responses", { model: "desk", input: `ask ${name}`, background: true }),
  mcp: (to, name) => post(to, "/mcp/servers/main/tools/agent_desk", { arguments: { prompt: `ask ${name}` } }),
  mcpWorkflow: (to, name) => post(to, "/mcp/servers/main/tools/workflow_steps", { arguments: { input: { name } } }),
  toolStep: (to, name) => post(to, "/workflows/steps/execute", { input: { name } }),
  agentStep: (to, name) => post(to, "/workflows/agents/execute", { input: { name } }),
  a2a: (to, name) => {
    const params = { message: { messageId: name, role: "ROLE_USER", parts: [{ text: `ask ${name}` }] } };
    return post(to, "/a2a/desk", { jsonrpc: "2.0", id: 1, method: "SendMessage", params }, { "a2a-version": "1.0" });
  },
  oldA2a: (to, name) => {
    const message = { kind: "message", messageId: name, role: "user", parts: [{ kind: "text", text: `ask ${name}` }] };
    return post(to, "/a2a/desk", { jsonrpc: "2.0", id: 1, method: "message/send", params: { message } });
  },
};

test("POST /approvals/:approvalId at a new process, after kill -9 of the one at which was asked by each way in: what was approved runs once, what was denied never, and all of them end", {
  skip,
}, async () => {
  const names = Object.keys(DOORS).flatMap((door) => [`${door}_yes`, `${door}_no`]);
  for (const name of names) {
    const reply = await DOORS[name.split("_")[0]!]!(other, name);
    assert.equal(reply.ok, true, `${name}: ${await reply.text()}`);
  }
  const open = (to: Served): Promise<Loose[]> => dataOf(fetch(`${to.url}/approvals?limit=100`));
  await until(async () => (await open(other)).length === names.length, "a question of each");
  await other.interrupt("SIGKILL");
  const third = await start();
  const asked = await open(third);
  assert.deepEqual(asked.map(({ input }) => input.name).sort(), names.toSorted());
  await Promise.all(
    asked.map(({ approvalId, input }) =>
      dataOf(post(third, `/approvals/${approvalId}`, { approved: input.name.endsWith("_yes") })),
    ),
  );
  for (const { input, agentId, runId, workflowId, executionId } of asked) {
    const agent = input.name.startsWith("subAgent") ? "chief" : agentId;
    const path =
      runId === undefined ? `workflows/${workflowId}/executions/${executionId}/state` : `agents/${agent}/runs/${runId}`;
    // A no is the error of a step that calls the tool itself.
    const end = agentId === undefined && input.name.endsWith("_no") ? "error" : "completed";
    await until(async () => (await dataOf(fetch(`${third.url}/${path}`))).status === end, `the end of ${input.name}`);
    assert.equal(calls(input.name).length, end === "completed" && input.name.endsWith("_yes") ? 1 : 0, input.name);
  }
  assert.deepEqual(await open(third), []);
});
