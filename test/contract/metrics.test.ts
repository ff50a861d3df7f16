/** GET /metrics: what is counted, by labels from a closed list. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { VERSION } from "../../core/lib/version.ts";
import { type ParsedFamily, parseExposition, seriesName } from "../support/exposition.ts";
import { FIXTURES } from "../support/fixtures.ts";
import { programMissing } from "../support/programs.ts";
import { RawClient, sleep } from "../support/raw-http.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";

const MANIFEST = manifestWith(
  { tools: ["sum"] },
  {
    providers: {
      demo: {
        use: "scripted",
        replies: [{ when: "refuse", error: "refused the request" }],
        models: {
          slow: { firstDelay: "60s" },
          never: { replies: [{ error: "refused the request" }] },
          backup: { replies: [{ error: "refused the request" }] },
        },
      },
    },
    tools: {
      sum: { use: "add" },
      broken: { use: "fail" },
      late: { use: "linger", timeout: "30ms" },
      asked: { use: "add", approval: true },
    },
    memory: { default: {} },
    workflows: {
      flow: {
        steps: [
          { id: "one", andThen: { set: { n: 1 } } },
          { id: "two", andWorkflow: { workflow: "inner" } },
        ],
      },
      inner: { steps: [{ id: "three", andThen: { set: "{{ data.n }}" } }] },
      failing: { steps: [{ id: "bad", andThen: { set: "{{ data.missing }}" } }] },
      asking: { steps: [{ id: "ask", andThen: { suspend: { reason: "Approval needed" } } }] },
    },
  },
);
const SLOW = { name: "Slow", instructions: "Wait.", model: "demo/slow", memory: false };
const CHAINED = { name: "Chained", instructions: "Help.", model: ["demo/never", "demo/backup"], memory: false };
const CHOSEN = { name: "Chosen", instructions: "Help.", model: "demo/{{ context.model }}", memory: false };

type Scrape = (name: string, labels?: Record<string, string>) => number | undefined;

async function scrape({ get }: TestService): Promise<Scrape & { families: Map<string, ParsedFamily> }> {
  const reply = await get("/metrics");
  assert.equal(reply.status, 200);
  const families = parseExposition(await reply.text());
  const read: Scrape = (name, labels = {}) => {
    const family = families.get(name) ?? families.get(name.replace(/_(?:bucket|sum|count)$/, ""));
    return family?.samples.get(seriesName(name, labels));
  };
  return Object.assign(read, { families });
}

const GET_AGENTS = { operation: "agents.list", route: "/agents", method: "GET" };
const POST_TEXT = { operation: "agents.generateText", route: "/agents/:id/text", method: "POST" };
const METRICS = { operation: "platform.metrics", route: "/metrics", method: "GET" };

const agents = { ...(MANIFEST.agents as object), slow: SLOW, chained: CHAINED, chosen: CHOSEN };
const service = await startService({ after }, { ...MANIFEST, agents }, { plugins: [FIXTURES] });
const { get, post } = service;

/** What a counter has grown by while `work` went on. */
async function growth(
  work: () => Promise<unknown>,
): Promise<(name: string, labels?: Record<string, string>) => number> {
  const earlier = await scrape(service);
  await work();
  const later = await scrape(service);
  return (name, labels) => (later(name, labels) ?? 0) - (earlier(name, labels) ?? 0);
}

test("GET /metrics is Prometheus text that nothing may cache, and HEAD has the same head", async () => {
  const reply = await get("/metrics");
  assert.equal(reply.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  assert.equal(reply.headers.get("cache-control"), "no-store");
  parseExposition(await reply.text());
  const head = await fetch(`${service.url}/metrics`, { method: "HEAD" });
  assert.equal(head.status, 200);
  assert.equal(head.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
});

test("GET /metrics counts requests by operation and class of status, and itself", async () => {
  const grown = await growth(async () => {
    for (let count = 0; count < 40; count++) await get("/agents");
    await post("/agents/assistant/text", { input: "hello" });
    await post("/agents/assistant/text", { input: 1 });
    await post("/agents/nobody/text", { input: "hello" });
    await fetch(`${service.url}/agents`, { method: "HEAD" });
  });
  assert.equal(grown("penstock_http_requests_total", { ...GET_AGENTS, status: "2xx" }), 41);
  assert.equal(grown("penstock_http_requests_total", { ...POST_TEXT, status: "2xx" }), 1);
  assert.equal(grown("penstock_http_requests_total", { ...POST_TEXT, status: "4xx" }), 2);
  assert.equal(grown("penstock_http_requests_total", { ...METRICS, status: "2xx" }), 1);
  assert.equal(grown("penstock_http_request_duration_seconds_count", GET_AGENTS), 41);
  assert.equal(grown("penstock_http_request_duration_seconds_count", POST_TEXT), 3);
});

test("GET /metrics has a series from 0 on for what nobody has asked for yet", async () => {
  const read = await scrape(service);
  const labels = { operation: "memory.search", route: "/api/memory/search", method: "GET" };
  for (const status of ["2xx", "4xx", "5xx"])
    assert.equal(read("penstock_http_requests_total", { ...labels, status }), 0);
  assert.equal(read("penstock_model_calls_total", { model: "demo/never", outcome: "rate_limited" }), 0);
});

test("GET /metrics has no label that a client chose: a thousand paths and methods are a handful of series", async () => {
  const earlier = await scrape(service);
  const grown = await growth(async () => {
    for (let count = 0; count < 10; count++) {
      await Promise.all(Array.from({ length: 100 }, (_, index) => get(`/nowhere/${count}/${index}`)));
    }
    // Those that the parser of node:http knows too.
    const odd = ["LOCK", "MKCOL", "PROPFIND"].map((method) => fetch(`${service.url}/agents`, { method }));
    for (const reply of await Promise.all(odd)) assert.equal(reply.status, 405);
    await fetch(`${service.url}/agents`, { method: "OPTIONS" });
    await post("/agents/chosen/text", { input: "hi", options: { context: { model: "made-up-1" } } });
    await post("/agents/chosen/text", { input: "hi", options: { context: { model: "echo" } } });
    await post("/tools/nothing/execute", { input: {} });
  });
  const unknown = { operation: "unknown", route: "unknown", status: "4xx" };
  assert.equal(grown("penstock_http_requests_total", { ...unknown, method: "GET" }), 1000);
  assert.equal(grown("penstock_http_requests_total", { ...unknown, method: "other" }), 3);
  const preflight = { operation: "preflight", route: "preflight", method: "OPTIONS", status: "2xx" };
  assert.equal(grown("penstock_http_requests_total", preflight), 1);
  const later = await scrape(service);
  const texts = [...later.families.values()].flatMap(({ samples }) => [...samples.keys()]);
  for (const foreign of ["nowhere", "made-up", "LOCK", "PROPFIND", "nothing"]) {
    assert.deepEqual(
      texts.filter((text) => text.includes(foreign)),
      [],
    );
  }
  const size = ({ families }: typeof later) =>
    [...families.values()].reduce((sum, { samples }) => sum + samples.size, 0);
  assert.ok(size(later) - size(earlier) < 100, `${size(later) - size(earlier)} new series`);
});

test("GET /metrics counts runs of agents, and calls of models, of every try its own, with their tokens", async () => {
  const grown = await growth(async () => {
    await post("/agents/assistant/text", { input: "one two three" });
    assert.equal((await post("/agents/chained/text", { input: "refuse" })).status, 500);
  });
  const calls = (model: string, outcome: string) => grown("penstock_model_calls_total", { model, outcome });
  assert.equal(calls("demo/echo", "ok"), 1);
  const runs = (agent: string, outcome: string) => grown("penstock_agent_runs_total", { agent, outcome });
  assert.equal(runs("assistant", "completed"), 1);
  assert.equal(runs("chained", "error"), 1);
  assert.equal(calls("demo/never", "refused_the_request"), 1);
  assert.equal(calls("demo/backup", "refused_the_request"), 1);
  assert.equal(grown("penstock_model_call_duration_seconds_count", { model: "demo/echo" }), 1);
  assert.equal(grown("penstock_model_call_duration_seconds_count", { model: "demo/never" }), 0);
  const tokens = (direction: string) => grown("penstock_model_tokens_total", { model: "demo/echo", direction });
  const { data } = (await (await post("/agents/assistant/text", { input: "one two three" })).json()) as {
    data: { usage: { promptTokens: number; completionTokens: number } };
  };
  assert.equal(tokens("input"), data.usage.promptTokens);
  assert.equal(tokens("output"), data.usage.completionTokens);
  assert.ok(data.usage.completionTokens > 0);
});

test("GET /metrics counts calls of tools by outcome", async () => {
  const grown = await growth(async () => {
    await post("/tools/sum/execute", { input: { a: 1, b: 2 } });
    await post("/tools/sum/execute", { input: { a: "x" } });
    await post("/tools/broken/execute", { input: {} });
    await post("/tools/late/execute", { input: { takes: 10_000 } });
    await post("/tools/asked/execute", { input: { a: 1, b: 2 } });
  });
  const calls = (tool: string, outcome: string) => grown("penstock_tool_calls_total", { tool, outcome });
  assert.equal(calls("sum", "ok"), 1);
  assert.equal(calls("sum", "invalid_input"), 1);
  assert.equal(calls("broken", "failed"), 1);
  assert.equal(calls("late", "timed_out"), 1);
  assert.equal(calls("asked", "not_approved"), 1);
});

test("GET /metrics counts executions of workflows by how they came to rest, and steps by their path", async () => {
  const grown = await growth(async () => {
    await post("/workflows/flow/execute", { input: {} });
    await post("/workflows/failing/execute", { input: {} });
    await post("/workflows/asking/execute", { input: {} });
  });
  const ended = (workflow: string, status: string) => grown("penstock_workflow_executions_total", { workflow, status });
  assert.equal(ended("flow", "completed"), 1);
  assert.equal(ended("inner", "completed"), 0, "a sub-workflow is a part of its workflow's execution");
  assert.equal(ended("failing", "error"), 1);
  assert.equal(ended("asking", "suspended"), 1);
  const steps = (workflow: string, step: string, outcome: string) =>
    grown("penstock_workflow_steps_total", { workflow, step, outcome });
  assert.equal(steps("flow", "one", "done"), 1);
  assert.equal(steps("flow", "two/three", "done"), 1);
  assert.equal(steps("failing", "bad", "failed"), 1);
  assert.equal(steps("asking", "ask", "suspended"), 1);
});

test("GET /metrics shows requests and streams that go on, and a client that leaves", async () => {
  const client = await RawClient.open(service.port);
  const body = JSON.stringify({ input: "x" });
  await client.send(
    `POST /agents/slow/stream HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  const settled = async (holds: (read: Scrape) => boolean) => {
    for (let tries = 0; !holds(await scrape(service)); tries++) {
      assert.ok(tries < 6_000, "what goes on is not shown");
      await sleep(10);
    }
  };
  await settled((read) => read("penstock_http_streams_open") === 1 && read("penstock_http_requests_in_flight")! >= 1);
  client.close();
  const stream = { operation: "agents.stream", route: "/agents/:id/stream", method: "POST", status: "aborted" };
  await settled(
    (read) => read("penstock_http_streams_open") === 0 && read("penstock_http_requests_total", stream) === 1,
  );
  await settled((read) => read("penstock_model_calls_total", { model: "demo/slow", outcome: "aborted" }) === 1);
  await settled((read) => read("penstock_agent_runs_total", { agent: "slow", outcome: "cancelled" }) === 1);
});

test("GET /metrics shows the store, the process and its event loop", async () => {
  const grown = await growth(async () => {
    assert.equal((await post("/api/memory/conversations", { userId: "ada" })).status, 201);
    const until = performance.now() + 120;
    while (performance.now() < until);
    await sleep(50);
  });
  const read = await scrape(service);
  assert.ok(grown("penstock_store_commits_total", { outcome: "ok" }) >= 1);
  assert.ok(grown("penstock_store_commit_duration_seconds_count") >= 1);
  assert.equal(read("penstock_build_info", { version: VERSION, node: process.version }), 1);
  assert.ok(read("process_resident_memory_bytes")! > 20e6);
  assert.ok(read("nodejs_heap_size_used_bytes")! > 5e6);
  assert.ok(grown("process_cpu_user_seconds_total") > 0);
  assert.ok(grown("nodejs_eventloop_active_seconds_total") > 0.1);
  assert.ok(read("process_start_time_seconds")! <= Date.now() / 1000);
});

test("GET /metrics has what dashboards for Node.js show, once, whatever is added by a reload", async () => {
  const names = (read: { families: Map<string, unknown> }) =>
    [...read.families.keys()].filter((name) => /^(process|nodejs)_/.test(name)).toSorted();
  const before = names(await scrape(service));
  for (const name of [
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
    "process_resident_memory_bytes",
    "nodejs_eventloop_lag_seconds",
    "nodejs_eventloop_lag_p99_seconds",
    "nodejs_active_handles",
    "nodejs_heap_space_size_used_bytes",
    "nodejs_version_info",
    "nodejs_gc_duration_seconds",
  ])
    assert.ok(before.includes(name), name);
  service.booted.service!.metrics.renew();
  assert.deepEqual(names(await scrape(service)), before);
});

test("docs/deploy: the dashboard and the alerts name metrics that GET /metrics has", async () => {
  const { families } = await scrape(service);
  for (const file of ["grafana.json", "alerts.yaml"]) {
    const text = await readFile(new URL(`../../docs/deploy/${file}`, import.meta.url), "utf8");
    const names = new Set(
      text.match(/\b(?:penstock|nodejs|process)_\w+/g)!.map((name) => name.replace(/_bucket$/, "")),
    );
    assert.ok(names.size > 5);
    for (const name of names) assert.ok(families.has(name), `${file} names ${name}`);
  }
});

const skip = programMissing("promtool");
test("GET /metrics: promtool check metrics finds nothing", { skip }, async () => {
  const { status, stdout, stderr } = spawnSync("promtool", ["check", "metrics"], {
    input: await (await get("/metrics")).text(),
    encoding: "utf8",
  });
  assert.deepEqual([status, stdout, stderr], [0, "", ""]);
});

test("docs/deploy/alerts.yaml: promtool check rules finds nothing", { skip }, () => {
  const file = fileURLToPath(new URL("../../docs/deploy/alerts.yaml", import.meta.url));
  const { status, stdout } = spawnSync("promtool", ["check", "rules", "--lint-fatal", file], { encoding: "utf8" });
  assert.equal(status, 0, stdout);
});

test("GET /metrics says how late the event loop was since the last scrape", async () => {
  await scrape(service);
  await sleep(50);
  const until = performance.now() + 150;
  while (performance.now() < until);
  await sleep(50);
  const late = (await scrape(service))("nodejs_eventloop_lag_max_seconds")!;
  assert.ok(late > 0.1 && late < 30, String(late));
});

test("GET /metrics has the families that docs/observability.md lists, and no others of Penstock's own", async () => {
  const readme = await readFile(new URL("../../docs/observability.md", import.meta.url), "utf8");
  const table = /\| `penstock_\.\.\.`[\s\S]*?\n\n/.exec(readme)![0];
  const listed = [...table.matchAll(/^\| (`[^|]*)\|/gm)]
    .slice(1)
    .flatMap(([, cell]) => [...cell!.matchAll(/`([a-z_]+)`/g)].map(([, name]) => name!))
    .filter((name) => !name.startsWith("_") && !name.startsWith("otlp_"));
  const { families } = await scrape(service);
  const own = [...families.keys()].filter((name) => name.startsWith("penstock_")).map((name) => name.slice(9));
  assert.deepEqual(own.toSorted(), listed.toSorted());
});
