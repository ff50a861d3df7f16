/** Requests with an `Idempotency-Key` at two real processes over one PostgreSQL. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Served } from "../support/command-line.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import { dataOf } from "../support/served-upstream.ts";
import { holdingFolder, twoProcesses } from "../support/two-processes.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
const { folder, hold, release } = await holdingFolder();

/** Notes its calls, and waits while a file of the given name is there. */
const WAITING = `import { appendFileSync, existsSync } from "node:fs";
const wait = async (name) => {
  appendFileSync(${JSON.stringify(join(folder, "calls"))}, name + " " + process.pid + "\\n");
  while (existsSync(${JSON.stringify(`${folder}/`)} + name)) await new Promise((resolve) => setTimeout(resolve, 10));
  return { name, pid: process.pid };
};`;
const { url, one, other } = await twoProcesses(server, folder, {
  plugins: {
    "tools/linger.mjs": `${WAITING} export default { kind: "tool", name: "linger", description: "Waits", execute: ({ name }) => wait(name) };`,
    "steps/linger.mjs": `${WAITING} export default { kind: "step", execute: ({ input }) => wait(input.name) };`,
  },
  tools: { linger: { use: "linger" } },
  workflows: { long: { steps: [{ id: "one", andThen: { use: "linger" } }] } },
});

const calls = (name: string) =>
  (existsSync(join(folder, "calls")) ? readFileSync(join(folder, "calls"), "utf8") : "")
    .split("\n")
    .filter((line) => line.startsWith(`${name} `)).length;

const post = (to: Served, path: string, body: object, key: string) =>
  fetch(to.url + path, {
    method: "POST",
    headers: { "content-type": "application/json", "idempotency-key": key },
    body: JSON.stringify(body),
  });
const linger = (to: Served, name: string, key = name) => post(to, "/tools/linger/execute", { input: { name } }, key);
const isReplayed = (reply: Response) => reply.headers.get("idempotency-replayed") === "true";

test("POST /tools/:name/execute with the Idempotency-Key of a request that another process works on waits for its reply", {
  skip,
}, async () => {
  hold("a");
  const first = linger(one, "a");
  await until(() => calls("a") === 1, "the call");
  const second = linger(other, "a");
  assert.equal((await linger(other, "b", "a")).status, 422);
  release("a");
  const text = await (await first).text();
  const replayed = await second;
  assert.ok(isReplayed(replayed));
  assert.equal(await replayed.text(), text);
  assert.ok(isReplayed(await linger(other, "a")));
  assert.equal(calls("a"), 1);
});

test("POST /tools/:name/execute with one Idempotency-Key at two processes at once runs once, for each of 30 keys", {
  skip,
}, async () => {
  const keys = Array.from({ length: 30 }, (_, index) => `k${index}`);
  const replies = await Promise.all(keys.flatMap((key) => [one, other, one].map((to) => linger(to, key))));
  assert.deepEqual(new Set(replies.map(({ status }) => status)), new Set([200]));
  assert.equal(replies.filter(isReplayed).length, 60);
  assert.deepEqual(
    keys.filter((key) => calls(key) !== 1),
    [],
  );
});

test("POST with the Idempotency-Key of a request whose process was killed runs a tool again, and finds a workflow's execution again", {
  skip,
}, async () => {
  hold("c");
  hold("d");
  linger(one, "c").catch(() => {});
  const execute = (to: Served) => post(to, "/workflows/long/execute", { input: { name: "d" } }, "d");
  execute(one).catch(() => {});
  await until(() => calls("c") === 1 && calls("d") === 1, "both");
  const [row] = await server!.query(
    "SELECT value FROM penstock WHERE value LIKE '%runId%' AND key LIKE 'ik/%' AND value LIKE '%process%' LIMIT 1",
    url,
  );
  assert.ok(row !== undefined);
  await one.interrupt("SIGKILL");
  const again = [linger(other, "c"), execute(other)] as const;
  await until(() => calls("c") === 2 && calls("d") === 2, "that both go on");
  release("c");
  release("d");
  const [tool, workflow] = await Promise.all(again);
  assert.deepEqual([tool.status, isReplayed(tool)], [200, false]);
  const { executionId, status } = await dataOf(workflow);
  assert.equal(status, "completed");
  const list = await dataOf(fetch(`${other.url}/workflows/executions`));
  assert.deepEqual(list.executions?.map(({ id }: { id: string }) => id) ?? list.map(({ id }: { id: string }) => id), [
    executionId,
  ]);
});
