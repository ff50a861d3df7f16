/** `observability.otlp`: spans of a real service at a collector. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { type TestContext, test } from "node:test";
import { parse } from "yaml";
import { parseExposition } from "../support/exposition.ts";
import { type Receiver, startReceiver, valuesOf } from "../support/otlp-receiver.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestOptions, type TestService } from "../support/service.ts";

const TOOLS = { sum: { use: "add" } };
const PROVIDERS = {
  demo: { use: "scripted", replies: [{ when: "add", call: { tool: "sum", input: { a: 1, b: 2 } } }] },
};

async function receiverOf(t: TestContext): Promise<Receiver> {
  const receiver = await startReceiver();
  t.after(() => receiver.close());
  return receiver;
}

function sendingTo(t: TestContext, otlp: object, options: TestOptions = {}): Promise<TestService> {
  const rest = {
    logs: { level: "info" },
    version: "4.5.6",
    tools: TOOLS,
    providers: PROVIDERS,
    observability: { otlp },
  };
  return startService(t, manifestWith({ tools: ["sum"] }, rest), options);
}

/** Since 1970, of a time as the API gives it. */
const microsecondsOf = (time: string) => Date.parse(`${time.slice(0, 23)}Z`) * 1_000 + Number(time.slice(23, 26));

async function until(holds: () => boolean, what: string): Promise<void> {
  for (let tries = 0; !holds(); tries++) {
    assert.ok(tries < 6_000, what);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

test("a run arrives at the collector as one tree, the same that GET /observability/traces/:traceId shows", async (t) => {
  const receiver = await receiverOf(t);
  const { post, get } = await sendingTo(t, { endpoint: receiver.url, headers: { "x-team": "pens" } });
  assert.equal((await post("/agents/assistant/text", { input: "add" })).status, 200);
  await until(() => receiver.received.length > 0, "spans arrive");
  const [{ path, headers, resource, scope, spans }] = receiver.received as [Receiver["received"][0]];
  assert.equal(path, "/v1/traces");
  assert.equal(headers["x-team"], "pens");
  assert.deepEqual(resource, { "service.name": "Test", "service.version": "4.5.6" });
  assert.equal(scope.name, "penstock");
  const roots = spans.filter(({ parentSpanId }) => parentSpanId === undefined);
  assert.deepEqual(
    roots.map(({ name }) => name),
    ["invoke_agent Assistant"],
  );
  const names = spans.map(({ name }) => name);
  for (const name of ["chat echo", "execute_tool sum"]) assert.ok(names.includes(name), `${name} in ${names}`);

  const { data } = (await (await get(`/observability/traces/${roots[0]!.traceId}`)).json()) as Loose;
  assert.equal(data.spanCount, spans.length);
  for (const shown of data.spans as Loose[]) {
    const sent = spans.find(({ spanId }) => spanId === shown.spanId)!;
    assert.equal(sent.name, shown.name);
    assert.equal(sent.parentSpanId ?? null, shown.parentSpanId);
    assert.equal(sent.kind, shown.kind + 1);
    assert.deepEqual(valuesOf(sent.attributes), shown.attributes);
    assert.equal(sent.status.code, shown.status.code);
    // The collector is told nanoseconds, the page shows whole microseconds of them: the last one is rounded.
    const apart = Math.abs(microsecondsOf(shown.startTime) - Number(BigInt(sent.startTimeUnixNano) / 1_000n));
    assert.ok(apart <= 1, `${sent.startTimeUnixNano} ${shown.startTime}`);
  }
});

test("observability.otlp: the manifest of docs/observability.md sends its spans to a collector", async (t) => {
  const receiver = await receiverOf(t);
  const readme = await readFile(new URL("../../docs/observability.md", import.meta.url), "utf8");
  const block = /^```yaml\n(observability:\n.*?)^```/ms.exec(readme)![1]!;
  const { post } = await startService(
    t,
    manifestWith({}, parse(block.replace("http://127.0.0.1:4318", () => receiver.url))),
  );
  await post("/agents/assistant/text", { input: "hello" });
  await until(() => receiver.received.length > 0, "spans arrive");
  assert.equal(receiver.received[0]!.headers["x-team"], "pens");
});

test("observability.otlp: the keys of the service are sent as Basic authorization, and stand in no line of the log", async (t) => {
  const receiver = await receiverOf(t);
  receiver.answers.push({ status: 401 });
  const env = { SERVICE_PUBLIC_KEY: "pk-public", SERVICE_SECRET_KEY: "sk-very-secret" };
  const { post, log } = await sendingTo(t, { endpoint: `${receiver.url}/otel?token=quiet` }, { env });
  await post("/agents/assistant/text", { input: "hello" });
  await until(() => log.some(({ msg }) => String(msg).includes("status 401")), "it is refused");
  const pair = Buffer.from("pk-public:sk-very-secret").toString("base64");
  assert.equal(receiver.received[0]!.headers.authorization, `Basic ${pair}`);
  assert.equal(receiver.received[0]!.path, "/otel/v1/traces?token=quiet");
  const lines = JSON.stringify(log);
  for (const secret of ["sk-very-secret", pair, "token=quiet"]) assert.ok(!lines.includes(secret), secret);
});

test("observability.otlp: what waits is sent when the service stops", async (t) => {
  const receiver = await receiverOf(t);
  const service = await sendingTo(t, { endpoint: receiver.url });
  await service.post("/tools/sum/execute", { input: { a: 1, b: 2 } });
  await service.stop();
  assert.deepEqual(
    receiver.spans().map(({ name }) => name),
    ["execute_tool sum"],
  );
});

test("a collector that is away slows no request and holds no stop up, and GET /metrics counts what it missed", async (t) => {
  const gone = await startReceiver();
  await gone.close();
  const service = await sendingTo(t, { endpoint: gone.url });
  const { post, get, log } = service;
  for (let count = 0; count < 12; count++) {
    const replies = await Promise.all(
      Array.from({ length: 100 }, () => post("/agents/assistant/text", { input: "hi" })),
    );
    for (const reply of replies) assert.equal((await dataOf(reply)).text, "hi");
  }
  await until(() => log.some(({ msg }) => /cannot be sent/.test(String(msg))), "it is told");
  const families = parseExposition(await (await get("/metrics")).text());
  const read = (name: string) => families.get(name)!.samples.get(name)!;
  assert.equal(read("penstock_otlp_spans_sent_total"), 0);
  assert.ok(read("penstock_otlp_spans_waiting") <= 2048);
  assert.ok(read("penstock_otlp_spans_dropped_total") >= 300);
  await service.stop();
  assert.ok(log.filter(({ msg }) => /collector/.test(String(msg))).length <= 3);
});

test("observability.otlp: without observability.otlp nothing is counted of it, and one key of two is told", async (t) => {
  const { get, log } = await sendingTo(t, {}, { env: { SERVICE_PUBLIC_KEY: "pk" } });
  assert.doesNotMatch(await (await get("/metrics")).text(), /otlp/);
  assert.deepEqual(
    log.filter(({ msg }) => /SERVICE_|collector|spans/.test(String(msg))),
    [],
  );
  const receiver = await receiverOf(t);
  const half = await sendingTo(t, { endpoint: receiver.url }, { env: { SERVICE_PUBLIC_KEY: "pk" } });
  assert.ok(half.log.some(({ msg }) => /one is not set/.test(String(msg))));
});
