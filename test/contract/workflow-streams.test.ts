/** Contract, "Workflow stream": order and numbers of events, the last one, readers that come late, leave, or are slow. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { until, watchProbe } from "../support/probe.ts";
import { parseEvents } from "../support/service.ts";
import {
  dataOf,
  eventsOf,
  type NumberedEvent,
  numbered,
  refused,
  startWorkflows,
  told,
} from "../support/workflow-service.ts";

const set = (id: string, value: unknown) => ({ id, andThen: { set: value } });
const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const ask = (id: string) => ({ id, andThen: { suspend: { reason: `${id}?`, data: { q: 1 } } } });
/** Steps of a workflow whose events, 14 MiB, are more than sockets hold, and more entries than stay in memory. */
const BIG = 530;
const MiB = 1024 * 1024;
const WORDS = "one two three four five six seven eight nine ten";

const client = await startWorkflows(
  null,
  {
    line: { steps: [probe("a"), set("b", { b: 1 }), probe("c")] },
    held: { steps: [probe("a"), probe("b", { hold: true }), probe("c")] },
    asking: { steps: [probe("a"), ask("ask"), probe("b")] },
    failing: { steps: [probe("a"), probe("b", { fails: 1 })] },
    misfit: { result: { type: "string" }, steps: [probe("a")] },
    retrying: { steps: [{ ...probe("a", { fails: 2 }), retry: { attempts: 2, delay: "1ms" } }] },
    told: { steps: [{ id: "letter", andAgent: { agent: "assistant", prompt: WORDS, stream: true } }] },
    silent: { steps: [{ id: "letter", andAgent: { agent: "assistant", prompt: WORDS } }] },
    big: {
      steps: [
        probe("go", { hold: true }),
        ...Array.from({ length: BIG }, (_, n) => probe(`s${n}`, { gives: { text: "x".repeat(13_500), n } })),
      ],
    },
  },
  {
    providers: { demo: { use: "scripted", chunks: 10 } },
    agents: {
      assistant: { name: "Assistant", description: "Helps", instructions: "Help.", model: "demo/echo", memory: false },
    },
    server: { limits: { heartbeat: "15s" } },
  },
);

function heap(): number {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const stream = (workflow: string, input: unknown = {}, options: object = {}) =>
  client.service.post(`/workflows/${workflow}/stream`, { input, options });

const isNumbered = (events: readonly NumberedEvent[], from = 1) =>
  assert.deepEqual(
    events.map(({ id }) => id),
    events.map((_, index) => index + from),
  );

describe("POST /workflows/:id/stream", () => {
  test("POST /workflows/:id/stream tells every step in order, numbered from 1; times never go back", async () => {
    const response = await stream("line", { n: 1 }, { executionId: "line-1" });
    assert.match(response.headers.get("content-type")!, /^text\/event-stream/);
    const events = await eventsOf(response);
    assert.deepEqual(told(events), [
      "workflow-start",
      ...["a", "b", "c"].flatMap((id) => [`step-start ${id}`, `step-complete ${id}`]),
      "workflow-complete",
      "workflow-result",
    ]);
    isNumbered(events);
    const times = events.map(({ event }) => event.timestamp);
    assert.deepEqual(times, times.toSorted());
    for (const { event } of events) assert.equal(event.executionId, "line-1");
    const [start, , , , complete] = events;
    assert.deepEqual([start!.event.input, start!.from], [{ n: 1 }, "line"]);
    assert.deepEqual(
      [complete!.event.output, complete!.event.stepIndex, complete!.event.stepType],
      [{ b: 1 }, 1, "andThen"],
    );
    const state = await client.state("line", "line-1");
    const { result, startAt, endAt, status } = events.at(-1)!.event;
    assert.deepEqual([result, startAt, endAt, status], [{ b: 1 }, state.startAt, state.endAt, "completed"]);
  });
  for (const [workflow, status, before] of [
    ["line", "completed", "workflow-complete"],
    ["asking", "suspended", "workflow-suspended"],
    ["failing", "error", "workflow-error"],
    ["misfit", "error", "workflow-error"],
  ] as const) {
    test(`POST /workflows/:id/stream of ${workflow}: the last event is workflow-result with status ${status}`, async () => {
      const events = await eventsOf(stream(workflow));
      isNumbered(events);
      assert.deepEqual(told(events).slice(-2), [before, "workflow-result"]);
      assert.equal(events.at(-1)!.event.status, status);
      assert.equal(events.filter(({ type }) => type === "workflow-result").length, 1);
    });
  }
  test("POST /workflows/:id/stream: the last event is workflow-result when the execution is cancelled or suspended from outside", async (t) => {
    const watched = watchProbe(t);
    for (const [command, before, status] of [
      ["cancel", "workflow-cancelled", "cancelled"],
      ["suspend", "workflow-suspended", "suspended"],
    ]) {
      const reply = stream("held", {}, { executionId: `held-${command}` });
      await watched.next("b");
      await dataOf(client.command("held", `held-${command}`, command!, { reason: "r" }));
      const events = await eventsOf(reply);
      assert.deepEqual(told(events).slice(-2), [before, "workflow-result"]);
      assert.equal(events.at(-1)!.event.status, status);
    }
  });
  test("POST /workflows/:id/stream: workflow-error and workflow-result say what went wrong, and where", async () => {
    const events = await eventsOf(stream("failing"));
    const error = { message: "the probe is broken", stepId: "b" };
    assert.deepEqual(
      events.slice(-3).map(({ type, event }) => [type, event.error]),
      [
        ["step-error", error],
        ["workflow-error", error],
        ["workflow-result", error],
      ],
    );
  });
  test("POST /workflows/:id/stream: tries that fail are no events", async () => {
    const events = told(await eventsOf(stream("retrying")));
    assert.deepEqual(events, [
      "workflow-start",
      "step-start a",
      "step-complete a",
      "workflow-complete",
      "workflow-result",
    ]);
  });
  test("POST /workflows/:id/stream: what happens is told when it happens, and is on record by then", async (t) => {
    const watched = watchProbe(t);
    const response = await stream("held", {}, { executionId: "live" });
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    while (!text.includes('"from":"b"') || !text.endsWith("\n\n")) text += (await reader.read()).value;
    assert.deepEqual(told(numbered(text)), ["workflow-start", "step-start a", "step-complete a", "step-start b"]);
    (await watched.next("b", "live")).release(1);
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) text += chunk.value;
    assert.deepEqual(numbered(text), await client.events("held", "live"));
  });
  test("POST /workflows/:id/stream: a client that leaves stops neither the execution nor readers who came later", async (t) => {
    const watched = watchProbe(t);
    const controller = new AbortController();
    const init = {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ input: {}, options: { executionId: "left" } }),
      signal: controller.signal,
    };
    const response = await fetch(`${client.service.url}/workflows/held/stream`, init);
    const call = await watched.next("b", "left");
    const other = client.events("held", "left");
    controller.abort();
    await assert.rejects(response.text());
    await new Promise((resolve) => setTimeout(resolve, 30));
    assert.equal(call.aborted, null);
    call.release("done");
    assert.equal((await other).at(-1)!.event.result, "done");
  });
});

describe("andAgent with stream: true", () => {
  test("andAgent with stream: true passes the parts of the run on as agent-part events, which are kept", async () => {
    const events = await eventsOf(stream("told", {}, { executionId: "parts" }));
    isNumbered(events);
    const parts = events.filter(({ type }) => type === "agent-part");
    for (const { from, event } of parts) assert.deepEqual([from, event.stepType], ["letter", "andAgent"]);
    const deltas = parts.filter(({ event }) => event.data.type === "text-delta").map(({ event }) => event.data.delta);
    assert.ok(deltas.length > 1, `${deltas.length} deltas`);
    assert.equal(deltas.join(""), WORDS);
    assert.deepEqual(await client.events("told", "parts"), events);
    const kinds = told(events).filter((line) => !line.startsWith("agent-part"));
    assert.deepEqual(kinds, [
      "workflow-start",
      "step-start letter",
      "step-complete letter",
      "workflow-complete",
      "workflow-result",
    ]);
  });
  test("andAgent without stream: true gives no agent-part events", async () => {
    const events = await eventsOf(stream("silent"));
    assert.deepEqual(
      events.filter(({ type }) => type === "agent-part"),
      [],
    );
  });
});

describe("GET /workflows/:id/executions/:executionId/stream", () => {
  test("GET .../executions/:executionId/stream from any number, by header or query, gives what comes after it", async () => {
    const events = await eventsOf(stream("line", {}, { executionId: "line-2" }));
    const path = "/workflows/line/executions/line-2/stream";
    for (let after = 0; after <= events.length + 1; after++) {
      assert.deepEqual(await eventsOf(client.service.get(`${path}?fromSequence=${after}`)), events.slice(after));
      assert.deepEqual(await eventsOf(client.service.get(path, { "last-event-id": `${after}` })), events.slice(after));
    }
  });
  test("GET .../executions/:executionId/stream follows an execution that runs, from any number", async (t) => {
    const watched = watchProbe(t);
    const { reply } = client.begin("held", "follow", {});
    const call = await watched.next("b", "follow");
    const readers = [0, 1, 2, 3, 4, 5, 8, 20].map((after) => ({
      after,
      events: client.events("held", "follow", after),
    }));
    await new Promise((resolve) => setTimeout(resolve, 30));
    call.release({ b: 2 });
    await dataOf(reply);
    const all = await client.events("held", "follow");
    isNumbered(all);
    for (const { after, events } of readers) assert.deepEqual(await events, all.slice(after));
  });
  test("GET .../executions/:executionId/stream ends at a suspension; the numbers go on after the resume, in one that waits too", async () => {
    const first = await eventsOf(stream("asking", { n: 1 }, { executionId: "ask-1" }));
    assert.deepEqual(await client.events("asking", "ask-1"), first);
    await client.resume("asking", "ask-1", { ok: 1 });
    const all = await client.events("asking", "ask-1");
    isNumbered(all);
    assert.deepEqual(all.slice(0, first.length), first);
    assert.deepEqual(told(all.slice(first.length)), [
      ...["workflow-start", "step-start ask", "step-complete ask", "step-start b", "step-complete b"],
      ...["workflow-complete", "workflow-result"],
    ]);
    assert.deepEqual(all[first.length]!.event.metadata, { resumed: true, stepId: "ask" });
    assert.deepEqual(await client.events("asking", "ask-1", first.length), all.slice(first.length));
  });
  test("GET .../executions/:executionId/stream: a hundred readers of one running execution get the same events", async (t) => {
    const watched = watchProbe(t);
    client.begin("held", "hundred", {});
    const call = await watched.next("b", "hundred");
    const readers = Array.from({ length: 100 }, (_, n) => client.events("held", "hundred", n % 9));
    await new Promise((resolve) => setTimeout(resolve, 50));
    call.release(1);
    const all = await Promise.all(readers);
    for (const [n, events] of all.entries()) assert.deepEqual(events, all[0]!.slice(n % 9));
  });
  test("GET .../executions/:executionId/stream of an execution that was cancelled while suspended ends with the cancellation", async () => {
    await client.execute("asking", {}, { executionId: "ask-2" });
    const before = await client.events("asking", "ask-2");
    await dataOf(client.command("asking", "ask-2", "cancel"));
    const after = await client.events("asking", "ask-2", before.length);
    isNumbered(after, before.length + 1);
    assert.deepEqual(told(after), ["workflow-cancelled", "workflow-result"]);
  });
  test("GET .../executions/:executionId/stream of an unknown execution is 404, as an envelope", async () => {
    assert.equal((await refused(client.service.get("/workflows/line/executions/none/stream"))).status, 404);
  });
});

test("slow readers neither stop the workflow, nor does what they have not read grow; later they read all of it", async (t) => {
  const watched = watchProbe(t);
  const before = heap();
  const first = await stream("big", {}, { executionId: "big" });
  const path = "/workflows/big/executions/big/stream";
  const readers = [first, ...(await Promise.all(Array.from({ length: 9 }, () => client.service.get(path))))];
  (await watched.next("go", "big")).release({});
  await until(async () => (await client.state("big", "big")).status === "completed", "the end");
  const grown = heap() - before;
  assert.ok(grown < 80 * MiB, `${Math.round(grown / MiB)} MiB more`);
  const [text, ...others] = await Promise.all(readers.map((reader) => reader.text()));
  const events = numbered(text!);
  isNumbered(events);
  assert.equal(events.length, 2 * BIG + 5);
  assert.equal(events.at(-1)!.event.result.n, BIG - 1);
  for (const other of others)
    assert.deepEqual(
      parseEvents(other).map(({ id }) => Number(id)),
      events.map(({ id }) => id),
    );
});
