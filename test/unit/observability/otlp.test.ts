/** Spans on their way to a collector that is a server of the test: what goes over the wire, and what a bad collector costs. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { createCollector } from "../../../core/observability/otlp/collector.ts";
import { otlpHeaders, shownUrl, tracesUrl } from "../../../core/observability/otlp/open.ts";
import { createSpanQueue, type QueueSettings, type SpanQueue } from "../../../core/observability/otlp/span-queue.ts";
import type { SpanData, TraceData } from "../../../core/observability/span.ts";
import { type Receiver, startReceiver, valuesOf } from "../../support/otlp-receiver.ts";

const TRACE = "0190f3c2a1b2".padEnd(32, "0");
const START = 1_763_640_000_123.25;

function spanOf(number: number, rest: Partial<SpanData> = {}): SpanData {
  return {
    traceId: TRACE,
    spanId: number.toString(16).padStart(16, "0"),
    parentSpanId: null,
    name: `span ${number}`,
    kind: 0,
    entity: { type: "agent", id: "a", name: "A" },
    start: START,
    end: START + 2,
    attributes: null,
    status: { code: 0 },
    events: null,
    links: null,
    ...rest,
  };
}

function traceOf(spans: SpanData[]): TraceData {
  const root = spans[0]!;
  const none = { open: 0, handed: 0, newer: null, older: null };
  return { traceId: TRACE, foreign: false, userId: null, root, spans, ...none };
}

const ENTITY = { "entity.id": "a", "entity.type": "agent", "entity.name": "A" };
const SCOPE = { name: "penstock", version: "9.9.9" };
const SOURCE = { name: "Shop", version: "1.2.3", scope: SCOPE };

/** No batch is given up by its own limit. */
const NEVER = 3_600_000;
const QUICK = { delay: 10, pause: 20 };

interface Rig {
  queue: SpanQueue;
  log: { level: string; msg: string; lost?: number }[];
  give(...spans: SpanData[]): void;
}

function rig(t: TestContext, url: string, times: QueueSettings["times"] = QUICK): Rig {
  const log: Rig["log"] = [];
  const formatters = { level: (level: string) => ({ level }) };
  const logger = pino({ base: undefined, formatters }, { write: (line: string) => void log.push(JSON.parse(line)) });
  const where = "the collector";
  const collector = createCollector({
    url: tracesUrl(url),
    headers: { "x-team": "pens" },
    source: SOURCE,
    timeout: NEVER,
  });
  const queue = createSpanQueue({ collector, logger, where, times });
  t.after(() => queue.close());
  return { queue, log, give: (...spans) => queue.take(traceOf(spans), spans) };
}

async function receiverOf(t: TestContext): Promise<Receiver> {
  const receiver = await startReceiver();
  t.after(() => receiver.close());
  return receiver;
}

async function until(holds: () => boolean, what: string): Promise<void> {
  for (let tries = 0; !holds(); tries++) {
    assert.ok(tries < 6_000, what);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

test("spans go over the wire with their ids, kinds, times, statuses, attributes, events and links", async (t) => {
  const receiver = await receiverOf(t);
  const { queue, give } = rig(t, receiver.url);
  const attributes = {
    "gen_ai.request.model": "demo/echo",
    "gen_ai.usage.input_tokens": 12,
    "gen_ai.request.temperature": 0.5,
    "gen_ai.request.stream": true,
    "gen_ai.response.finish_reasons": ["stop", "length"],
  };
  give(
    spanOf(1, { parentSpanId: "f".repeat(16), name: "invoke_agent A", status: { code: 1 } }),
    spanOf(2, {
      parentSpanId: "1".padStart(16, "0"),
      kind: 2,
      attributes,
      start: START + 0.5,
      end: START + 876.75,
      status: { code: 2, message: "rate limited" },
      events: [{ name: "retry", time: START + 1, attributes: { attempt: 2 } }],
      links: [{ traceId: "a".repeat(32), spanId: "b".repeat(16) }],
    }),
  );
  await until(() => queue.sent === 2, "both are sent");
  const [{ path, headers, resource, scope, spans }] = receiver.received as [Receiver["received"][0]];
  assert.equal(path, "/v1/traces");
  assert.equal(headers["x-team"], "pens");
  assert.equal(headers["content-encoding"], "gzip");
  assert.deepEqual(resource, { "service.name": "Shop", "service.version": "1.2.3" });
  assert.deepEqual(scope, SCOPE);
  const [root, child] = spans as [(typeof spans)[0], (typeof spans)[0]];
  assert.equal(root.traceId, TRACE);
  assert.equal(root.spanId, "0000000000000001");
  assert.equal(root.parentSpanId, "ffffffffffffffff");
  assert.equal(root.flags & 0x200, 0x200, "the parent of the root is in another service");
  assert.equal(child.flags & 0x200, 0, "that of a child is not");
  assert.equal(root.kind, 1);
  assert.equal(root.status.code, 1);
  assert.equal(root.startTimeUnixNano, "1763640000123250000");
  assert.equal(root.endTimeUnixNano, "1763640000125250000");
  assert.equal(child.kind, 3);
  assert.equal(child.endTimeUnixNano, "1763640001000000000");
  assert.deepEqual(child.status, { code: 2, message: "rate limited" });
  assert.deepEqual(valuesOf(child.attributes), { ...ENTITY, ...attributes });
  assert.deepEqual(
    child.events.map(({ name, timeUnixNano, attributes }) => [name, timeUnixNano, valuesOf(attributes)]),
    [["retry", "1763640000124250000", { attempt: 2 }]],
  );
  assert.deepEqual(
    child.links.map(({ traceId, spanId }) => [traceId, spanId]),
    [["a".repeat(32), "b".repeat(16)]],
  );
});

test("spans are sent in batches, one at a time, each once and in order", async (t) => {
  const receiver = await receiverOf(t);
  const { queue, give } = rig(t, receiver.url);
  for (let number = 1; number <= 1000; number++) give(spanOf(number));
  await until(() => queue.sent === 1000, "all are sent");
  assert.deepEqual(
    receiver.spans().map(({ spanId }) => Number.parseInt(spanId, 16)),
    Array.from({ length: 1000 }, (_, index) => index + 1),
  );
  assert.ok(receiver.received.every(({ spans }) => spans.length <= 256));
  assert.ok(receiver.received.length <= 5, `${receiver.received.length} batches`);
});

test("a collector that says 503 is tried again, and the spans arrive", async (t) => {
  const receiver = await receiverOf(t);
  receiver.answers.push({ status: 503 }, { status: 503 });
  const { queue, give, log } = rig(t, receiver.url);
  give(spanOf(1));
  await until(() => queue.sent === 1, "it is sent");
  assert.equal(receiver.received.length, 3);
  assert.equal(queue.dropped, 0);
  assert.deepEqual(
    log.map(({ level }) => level),
    ["warn", "info"],
    "one line when it failed, one when it worked again",
  );
});

test("a collector that asks for time gets it", async (t) => {
  const receiver = await receiverOf(t);
  receiver.answers.push({ status: 429, headers: { "retry-after": "1" } });
  const { queue, give } = rig(t, receiver.url);
  const started = performance.now();
  give(spanOf(1));
  await until(() => queue.sent === 1, "it is sent");
  assert.ok(performance.now() - started >= 990);
});

test("a batch that the collector refuses is not sent again, and the next one is", async (t) => {
  const receiver = await receiverOf(t);
  receiver.answers.push({ status: 401 });
  const { queue, give, log } = rig(t, receiver.url);
  give(spanOf(1));
  await until(() => queue.dropped === 1, "it is refused");
  give(spanOf(2));
  await until(() => queue.sent === 1, "the next is sent");
  assert.deepEqual(
    receiver.spans().map(({ name }) => name),
    ["span 1", "span 2"],
  );
  assert.equal(log[0]!.msg, "spans cannot be sent to the collector: status 401");
  assert.equal(log[1]!.lost, 1);
});

test("a collector that is away costs 2,048 spans of memory and one line in the log", async (t) => {
  const receiver = await startReceiver();
  await receiver.close();
  const { queue, give, log } = rig(t, receiver.url);
  for (let number = 0; number < 200_000; number++) give(spanOf(number));
  assert.equal(queue.size, 2048);
  assert.equal(queue.dropped, 200_000 - 2048);
  await until(() => log.length > 1, "it is told");
  await queue.close();
  assert.equal(queue.size, 0);
  assert.equal(queue.dropped, 200_000);
  assert.ok(log.length <= 3, JSON.stringify(log));
});

test("a trace that does not fit is dropped as a whole", async (t) => {
  const receiver = await startReceiver();
  await receiver.close();
  const { queue, give } = rig(t, receiver.url);
  for (let number = 0; number < 2046; number++) give(spanOf(number));
  give(spanOf(1), spanOf(2), spanOf(3));
  assert.equal(queue.size, 2046);
  assert.equal(queue.dropped, 3);
});

test("spans that wait are sent at the end, and a collector that hangs delays it for the close timeout only", async (t) => {
  const receiver = await receiverOf(t);
  const calm = rig(t, receiver.url, { delay: 60_000 });
  calm.give(spanOf(1), spanOf(2));
  await calm.queue.close();
  assert.equal(calm.queue.sent, 2);
  receiver.answers.push("hang");
  const hanging = rig(t, receiver.url, { delay: 60_000, closeTimeout: 100 });
  hanging.give(spanOf(3));
  const before = performance.now();
  await hanging.queue.close();
  const took = performance.now() - before;
  assert.ok(took >= 90, `${took} ms`);
  assert.equal(hanging.queue.dropped, 1);
});

test("the address of a collector gets the path of traces unless it ends with it", () => {
  const cases = [
    ["http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"],
    ["http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"],
    ["https://cloud.example/api/otel", "https://cloud.example/api/otel/v1/traces"],
    ["https://cloud.example/api/otel/", "https://cloud.example/api/otel/v1/traces"],
    ["https://cloud.example/v1/traces", "https://cloud.example/v1/traces"],
    ["https://cloud.example/v1/traces/", "https://cloud.example/v1/traces"],
    ["https://cloud.example/otel?project=7", "https://cloud.example/otel/v1/traces?project=7"],
  ] as const;
  for (const [endpoint, url] of cases) assert.equal(tracesUrl(endpoint), url);
  assert.equal(shownUrl("https://me:secret@cloud.example/v1/traces?key=secret"), "https://cloud.example/v1/traces");
});

test("the keys of the service are sent as user and password unless the headers name an authorization", () => {
  const keys = { publicKey: "pk-1", secretKey: "sk-2" };
  const basic = `Basic ${Buffer.from("pk-1:sk-2").toString("base64")}`;
  assert.deepEqual(otlpHeaders({ "x-a": "b" }, keys), { "x-a": "b", Authorization: basic });
  assert.deepEqual(otlpHeaders({ AUTHORIZATION: "Bearer x" }, keys), { AUTHORIZATION: "Bearer x" });
  assert.deepEqual(otlpHeaders({}, null), {});
});
