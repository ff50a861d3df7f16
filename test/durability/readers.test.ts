/** Readers of the events of an execution whose step runs for long: those that leave are not kept until it ends. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { EventSink } from "../../core/lib/event-sink.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { Execution } from "../../core/workflows/run/execution.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { soon } from "../support/providers.ts";
import { startService } from "../support/service.ts";
import { CALL, processesOf } from "../support/workflow-process.ts";

const WORKFLOWS = { w: { steps: [{ id: "long", andThen: { use: "never" } }] } };
const PLUGINS = { "steps/never.mjs": `export default { kind: "step", execute: () => new Promise(() => {}) };` };

/** A reader that has read all there is, and leaves. */
class Reader implements EventSink {
  closed = false;
  events = 0;
  #listener = () => {};
  open() {}
  send() {
    this.events++;
    return undefined;
  }
  onLeave(listener: () => void) {
    this.#listener = listener;
  }
  leave() {
    this.closed = true;
    this.#listener();
  }
}

async function running(t: TestContext) {
  const start = await processesOf(t, { workflows: WORKFLOWS }, { plugins: PLUGINS });
  const { access, opened } = await start({ ...createMemoryStore(), kind: "sqlite" });
  t.after(() => opened.close());
  access.execute("w", { input: {}, options: { executionId: "e" } }, CALL).catch(() => {});
  await until(() => opened.engine.live.get("e")?.committed === 1, "the step");
  return access;
}

test("producers end when their readers leave, and the others go on", async (t) => {
  const access = await running(t);
  const stays = new Reader();
  let ended = false;
  const staying = (await access.attach("w", "e", 0))(stays);
  staying
    .catch(() => {})
    .finally(() => {
      ended = true;
    });
  const left: Promise<void>[] = [];
  for (let count = 0; count < 100; count++) {
    const reader = new Reader();
    left.push((await access.attach("w", "e", 0))(reader));
    await until(() => reader.events === 2, "what there is to read");
    reader.leave();
  }
  await soon(Promise.all(left), "the end of the producers");
  assert.deepEqual([stays.events, ended], [2, false]);
});

test("GET /workflows/:id/executions/:executionId/stream: the service hears at once that a client has left", async (t) => {
  const wake = t.mock.method(Execution.prototype, "notifyReaders");
  const plugins = [pluginFolder(t, PLUGINS)];
  const service = await startService(t, { name: "Test", version: "1.0.0", workflows: WORKFLOWS }, { plugins });
  service.post("/workflows/w/execute", { input: {}, options: { executionId: "e" } }).catch(() => {});
  await until(async () => (await service.get("/workflows/w/executions/e/state")).status === 200, "the execution");
  const controller = new AbortController();
  const reply = await fetch(`${service.url}/workflows/w/executions/e/stream`, { signal: controller.signal });
  await reply.body!.getReader().read();
  const before = wake.mock.callCount();
  controller.abort();
  await until(() => wake.mock.callCount() > before, "the news");
});
