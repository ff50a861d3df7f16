/** SIGTERM while workflows run: they may finish within `limits.drain`; what is left then goes on with the next start. */
import assert from "node:assert/strict";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { PENSTOCK, type Served, serve } from "../support/command-line.ts";
import { EventReader } from "../support/event-reader.ts";
import { soon } from "../support/providers.ts";
import { parseEvents } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

// biome-ignore lint/suspicious/noExplicitAny: replies of many shapes
type Loose = any;

/** Counts its runs in a file, and takes until no file of its name is there. Does not heed its signal. */
const NAP = `import { appendFileSync, existsSync } from "node:fs";
export default { kind: "step", execute: async ({ data, idempotencyKey }) => {
  appendFileSync("runs.log", idempotencyKey + "\\n");
  do await new Promise((resolve) => setTimeout(resolve, 100));
  while (existsSync("hold-" + idempotencyKey));
  return data; } };`;

async function folderWith(t: TestContext, drain: string) {
  const folder = await temporaryFolder(t);
  await mkdir(join(folder, "plugins/steps"), { recursive: true });
  await writeFile(join(folder, "plugins/steps/nap.mjs"), NAP);
  const steps = [
    { id: "one", andThen: { use: "nap" } },
    { id: "two", andThen: { use: "nap" } },
  ];
  const manifest = {
    name: "Test",
    version: "1.0.0",
    store: "sqlite:data/test.db",
    plugins: ["plugins"],
    server: { limits: { drain } },
    workflows: { w: { steps } },
  };
  await writeFile(join(folder, "service.yaml"), JSON.stringify(manifest));
  const start = () => serve(t, [process.execPath, PENSTOCK, "--port", "0"], { cwd: folder });
  const runs = async () => (await readFile(join(folder, "runs.log"), "utf8").catch(() => "")).trim().split("\n").sort();
  const hold = (key: string) => writeFile(join(folder, `hold-${key}`), "");
  const release = (key: string) => rm(join(folder, `hold-${key}`));
  return { start, runs, hold, release };
}

const body = (id: string) => ({ input: { n: 1 }, options: { executionId: id } });
const execute = ({ url }: Served, id: string) =>
  fetch(`${url}/workflows/w/execute`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body(id)),
  });

async function stateOf({ url }: Served, id: string): Promise<Loose> {
  return ((await (await fetch(`${url}/workflows/w/executions/${id}/state`)).json()) as Loose).data;
}

const stepsBegun = async (runs: () => Promise<string[]>, count: number) => {
  while ((await runs()).filter((run) => run !== "").length < count)
    await new Promise((resolve) => setTimeout(resolve, 10));
};

test("SIGTERM: what runs may finish within limits.drain, and its clients get their replies; exit 0", async (t) => {
  const { start, runs, hold, release } = await folderWith(t, "60s");
  for (const id of ["e", "f", "g"]) await hold(`${id}:one`);
  const server = await start();
  const reply = execute(server, "e");
  const reader = new EventReader(`${server.url}/workflows/w/stream`, body("f"));
  const left = new EventReader(`${server.url}/workflows/w/stream`, body("g"));
  await soon(stepsBegun(runs, 3), "the steps");
  left.leave();
  const code = server.interrupt("SIGTERM");
  await server.says(/stopping/);
  for (const id of ["e", "f", "g"]) await release(`${id}:one`);
  assert.equal(((await (await soon(reply, "the reply")).json()) as Loose).data.status, "completed");
  await soon(reader.end(), "the end of the stream");
  assert.deepEqual([reader.events.at(-1)!.type, reader.events.at(-1)!.status], ["workflow-result", "completed"]);
  assert.equal(await code, 0);
  const again = await start();
  for (const id of ["e", "f", "g"]) assert.equal((await stateOf(again, id)).status, "completed", id);
  assert.deepEqual(await runs(), ["e:one", "e:two", "f:one", "f:two", "g:one", "g:two"]);
});

test("SIGTERM: after limits.drain streams get an error event, requests 503; exit 0, and the next start goes on", async (t) => {
  const { start, runs, hold, release } = await folderWith(t, "900ms");
  for (const id of ["e", "f"]) await hold(`${id}:two`);
  const server = await start();
  const reply = execute(server, "e");
  const reader = new EventReader(`${server.url}/workflows/w/stream`, body("f"));
  await soon(stepsBegun(runs, 4), "the second steps");
  const code = server.interrupt("SIGTERM");
  const refused = await soon(reply, "the reply");
  assert.equal(refused.status, 503);
  assert.equal(refused.headers.get("retry-after"), "1");
  assert.equal(refused.headers.get("x-execution-id"), "e");
  await soon(reader.end(), "the end of the stream");
  assert.deepEqual(reader.events.at(-1), { type: "error", error: "the server is stopping" });
  assert.equal(await code, 0);
  assert.deepEqual(await runs(), ["e:one", "e:two", "f:one", "f:two"], "they were in their second steps");

  for (const id of ["e", "f"]) await release(`${id}:two`);
  const again = await start();
  // As a browser does: from the last id that it has seen. The error is no place in the stream.
  const seen = parseEvents(reader.text);
  assert.equal(seen.at(-1)!.id, "");
  const headers = { "last-event-id": seen.at(-2)!.id };
  const attached = fetch(`${again.url}/workflows/w/executions/f/stream`, { headers }).then((stream) => stream.text());
  const rest = parseEvents(await soon(attached, "the end of the stream"));
  const ids = [...seen.slice(0, -1), ...rest].map(({ id }) => Number(id));
  assert.deepEqual(
    ids,
    ids.map((_, index) => index + 1),
    "nothing is missed, nothing comes twice",
  );
  const last = JSON.parse(rest.at(-1)!.data);
  assert.deepEqual([last.type, last.status], ["workflow-result", "completed"]);
  while ((await stateOf(again, "e")).status === "running") await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual((await stateOf(again, "e")).status, "completed");
  const twice = ["e:one", "e:two", "e:two", "f:one", "f:two", "f:two"];
  assert.deepEqual(await runs(), twice, "what was done is not done again, what was not is");
});
