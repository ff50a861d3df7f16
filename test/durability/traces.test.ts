/** Traces of an execution whose process was killed: what goes on after the restart and after a resume names the first trace. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { PENSTOCK, serve } from "../support/command-line.ts";
import { FIXTURES } from "../support/fixtures.ts";
import { startReceiver, valuesOf } from "../support/otlp-receiver.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { temporaryFolder } from "../support/storage.ts";

const TAKES = 1500;

test("an execution that goes on after kill -9, and is resumed, is a trace each with a link to the first, at a collector too", async (t) => {
  const receiver = await startReceiver();
  t.after(() => receiver.close());
  const folder = await temporaryFolder(t);
  const steps = [
    { id: "wait", andThen: { tool: "linger", input: { takes: TAKES } } },
    { id: "ask", andThen: { suspend: { reason: "Yes?" } } },
    { id: "after", andThen: { set: { done: true } } },
  ];
  const manifest = {
    name: "Test",
    version: "1.0.0",
    store: `sqlite:${join(folder, "test.db")}`,
    tools: { linger: { use: "linger" } },
    workflows: { w: { steps } },
    observability: { otlp: { endpoint: receiver.url } },
  };
  const config = join(folder, "service.yaml");
  await writeFile(config, JSON.stringify(manifest));
  await writeFile(join(folder, "package.json"), "{}");
  const args = ["--config", config, "--plugins", FIXTURES, "--port", "0"];
  const start = () => serve(t, [process.execPath, PENSTOCK, "serve", ...args], { cwd: folder });
  const tracesOf = async (url: string): Promise<Loose[]> =>
    (await dataOf(fetch(`${url}/observability/traces?entityId=w`))).traces;

  const killed = await start();
  const post = (url: string, path: string, body: object) =>
    fetch(url + path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  post(killed.url, "/workflows/w/execute", { input: null, options: { executionId: "one" } }).catch(() => {});
  let first: Loose;
  await until(async () => {
    [first] = await tracesOf(killed.url);
    return first?.spanCount === 3;
  }, "the tool is called");
  await killed.interrupt("SIGKILL");

  const { url, interrupt } = await start();
  const ended = async (count: number) => {
    let traces: Loose[] = [];
    await until(async () => {
      traces = await tracesOf(url);
      return traces.length === count && traces.every(({ status }) => status === "completed");
    }, `${count} traces have ended`);
    return traces.map(({ rootSpan }) => rootSpan);
  };
  const link = [{ traceId: first!.traceId, spanId: first!.rootSpan.spanId }];
  const [recovered] = await ended(1);
  assert.equal(recovered.attributes["workflow.execution.occasion"], "recovery");
  assert.equal(recovered.attributes["workflow.execution.status"], "suspended");
  assert.deepEqual(recovered.links, link);
  assert.notEqual(recovered.traceId, first!.traceId);

  const resumed = await dataOf(post(url, "/workflows/w/executions/one/resume", {}));
  assert.equal(resumed.status, "completed");
  const [again] = await ended(2);
  assert.equal(again.attributes["workflow.execution.occasion"], "resume");
  assert.deepEqual(again.links, link);

  assert.equal(await interrupt("SIGTERM"), 0);
  const roots = receiver.spans().filter(({ parentSpanId }) => parentSpanId === undefined);
  const sent = roots.map(({ traceId, attributes, links }) => ({
    traceId,
    occasion: valuesOf(attributes)["workflow.execution.occasion"],
    links: links.map(({ traceId, spanId }) => ({ traceId, spanId })),
  }));
  assert.deepEqual(sent, [
    { traceId: recovered.traceId, occasion: "recovery", links: link },
    { traceId: again.traceId, occasion: "resume", links: link },
  ]);
});
