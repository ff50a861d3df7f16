/** Contract, "Observability": what of agents, workflows and tools is traced, as `GET /observability/traces/:traceId` shows it. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { until, watchProbe } from "../support/probe.ts";
import type { Loose } from "../support/served-upstream.ts";
import { type Client, dataOf, refused, startWorkflows } from "../support/workflow-service.ts";

const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const set = (id: string, value: object) => ({ id, andThen: { set: value } });
const ask = (id: string) => ({ id, andThen: { suspend: { reason: `${id}?` } } });
const REPLIES = [
  {
    when: "^plan",
    call: { tool: "delegate_task", input: { agentId: "writer", task: "write" } },
    then: "Planned: {{ result }}",
  },
  { when: "^linger", call: { tool: "linger", input: { takes: 60_000 } }, then: "Done." },
  { when: "^write", call: { tool: "add", input: { a: 2, b: 3 } }, then: "It is {{ result.sum }}." },
];
const agent = (name: string, rest: object = {}) => ({ name, model: "demo/echo", memory: false, ...rest });
const MANIFEST = {
  tools: {
    add: { use: "add" },
    linger: { use: "linger" },
    hasty: { use: "linger", timeout: "50ms" },
    fail: { use: "fail" },
    log: { use: "log" },
  },
  providers: { demo: { use: "scripted", replies: REPLIES } },
  agents: {
    planner: agent("Planner", { subAgents: ["writer"] }),
    writer: agent("Writer", { tools: ["add"] }),
    slow: agent("Slow", { tools: ["linger"] }),
  },
};
const WORKFLOWS = {
  letter: {
    name: "Letter",
    steps: [
      set("shape", { who: "{{ input.who }}" }),
      { id: "gate", andWhen: { if: "input.who == 'nobody'", then: set("never", {}) } },
      { id: "draft", name: "Draft it", andAgent: { agent: "planner", prompt: "plan a letter" } },
      { id: "sum", andThen: { tool: "add", input: { a: 1, b: 1 } } },
      { id: "send", andWorkflow: { workflow: "sending" } },
    ],
  },
  sending: { name: "Sending", steps: [set("stamp", { stamped: true }), probe("post")] },
  asking: { steps: [set("before", { n: 1 }), ask("ask"), set("after", { n: 2 })] },
  failing: { retry: { attempts: 1, delay: "1ms" }, steps: [{ id: "call", andThen: { tool: "fail", input: {} } }] },
  late: { steps: [{ ...probe("hang", { hold: true }), timeout: "50ms" }] },
  held: { steps: [probe("hold", { hold: true })] },
  tapped: {
    steps: [
      { id: "audit", andTap: { use: "probe", with: { fails: 9 } } },
      { id: "call", andThen: { tool: "log", input: { msg: "the tool says hello" } } },
    ],
  },
  race: { steps: [{ id: "first", andRace: [probe("slow", { hold: true }), set("quick", { quick: true })] }] },
};

const client = await startWorkflows(null, WORKFLOWS, MANIFEST);
const { service } = client;
const MARKER = "0af7651916cd43dd8448eb211c80319c";

const traceOf = (traceId: string): Promise<Loose> => dataOf(service.get(`/observability/traces/${traceId}`));
const historyOf = async (id: string): Promise<Loose> =>
  (await dataOf(service.get(`/agents/${id}/history?limit=1`))).entries[0];

/** The newest trace of an entity, once it has the status. */
async function newest(entityId: string, status = "completed", of: Client = client): Promise<Loose> {
  let found: Loose;
  await until(async () => {
    const { traces } = await dataOf(of.service.get(`/observability/traces?entityId=${entityId}&limit=1`));
    found = traces[0];
    return found?.status === status;
  }, `a trace of ${entityId} that is ${status}`);
  return dataOf(of.service.get(`/observability/traces/${found!.traceId}`));
}

/** Each span as a line, below its parent: its name, whose it is, how its step stands, what went wrong. */
function linesOf(nodes: Loose[], depth = 0): string[] {
  return nodes.flatMap(({ name, attributes, status, children }) => {
    const step = attributes["workflow.step.status"];
    const words = [`${"  ".repeat(depth)}${name}`, `(${attributes["entity.id"]})`];
    if (step !== undefined) words.push(step);
    if (status.code === 2) words.push(`! ${status.message}`);
    return [words.join(" "), ...linesOf(children, depth + 1)];
  });
}

const only = (trace: Loose, name: string): Loose => {
  const found = trace.spans.filter((span: Loose) => span.name === name);
  assert.equal(found.length, 1, `one span is called ${name}`);
  return found[0];
};

test("POST /workflows/:id/execute is one tree: steps, an agent, its sub-agent, tools, a sub-workflow", async () => {
  const { executionId } = await client.execute("letter", { who: "Ada" });
  const trace = await newest("letter");
  assert.deepEqual(linesOf(trace.tree), [
    "invoke_workflow Letter (letter)",
    "  andThen shape (letter) success",
    "  andWhen gate (letter) skipped",
    "  andAgent draft (letter) success",
    "    invoke_agent Planner (planner)",
    "      chat echo (planner)",
    "      execute_tool delegate_task (planner)",
    "        invoke_agent Writer (writer)",
    "          chat echo (writer)",
    "          execute_tool add (writer)",
    "          chat echo (writer)",
    "      chat echo (planner)",
    "  andThen sum (letter) success",
    "    execute_tool add (letter)",
    "  andWorkflow send (letter) success",
    "    invoke_workflow Sending (sending) success",
    "      andThen stamp (sending) success",
    "      andThen post (sending) success",
  ]);
  const root = only(trace, "invoke_workflow Letter");
  assert.deepEqual(
    [root.attributes["workflow.execution.id"], root.attributes["workflow.execution.status"], root.status.code],
    [executionId, "completed", 1],
  );
  assert.equal(root.attributes.input, '{"who":"Ada"}');
  assert.equal(only(trace, "andAgent draft").attributes["workflow.step.name"], "Draft it");
  const planner = only(trace, "invoke_agent Planner");
  // Those of the sub-agent below it too.
  const chats = trace.spans.filter(({ name }: Loose) => name.startsWith("chat "));
  const tokens = (span: Loose) => span.attributes["gen_ai.usage.input_tokens"] ?? 0;
  assert.equal(
    tokens(planner),
    chats.reduce((sum: number, span: Loose) => sum + tokens(span), 0),
  );
  assert.ok(tokens(planner) > 0);
  const entry = await historyOf("planner");
  assert.equal(entry.traceId, trace.traceId);
  assert.equal(entry.usage.promptTokens, tokens(planner));
  for (const { duration, startTime, endTime } of trace.spans) {
    assert.ok(duration >= 0 && endTime >= startTime);
  }
});

test("GET /observability/traces/:traceId/logs has the lines of the run, of its steps and of its tools", async () => {
  await client.execute("tapped");
  const trace = await newest("tapped");
  assert.deepEqual(linesOf(trace.tree), [
    "invoke_workflow tapped (tapped)",
    "  andTap audit (tapped) error ! the probe is broken",
    "  andThen call (tapped) success",
    "    execute_tool log (tapped)",
  ]);
  await client.execute("tapped");
  const { logs } = await dataOf(service.get(`/observability/traces/${trace.traceId}/logs`));
  assert.deepEqual(logs.map(({ body }: Loose) => body).sort(), ["andTap: the probe is broken", "the tool says hello"]);
});

test("POST /tools/:name/execute is a trace of its own", async () => {
  await dataOf(service.post("/tools/add/execute", { input: { a: 20, b: 22 } }));
  const trace = await newest("add");
  assert.deepEqual(linesOf(trace.tree), ["execute_tool add (add)"]);
  const { attributes } = trace.spans[0];
  assert.equal(attributes["entity.type"], "tool");
  assert.equal(attributes["gen_ai.tool.call.arguments"], '{"a":20,"b":22}');
  assert.equal(attributes["gen_ai.tool.call.result"], '{"sum":42}');
});

test("a tool at its time limit, and one with an input that does not fit, are errors", async () => {
  await refused(service.post("/tools/hasty/execute", { input: { takes: 60_000 } }));
  const late = await newest("hasty", "error");
  assert.deepEqual(linesOf(late.tree), ['execute_tool hasty (hasty) ! tool "hasty" timed out after 50ms']);
  await refused(service.post("/tools/add/execute", { input: { a: "no", b: 1 } }));
  const wrong = await newest("add", "error");
  assert.equal(wrong.spans[0].attributes["error.type"], "invalid_input");
});

test("a client that leaves is an error called cancelled, down to the tool", async () => {
  const controller = new AbortController();
  const leaving = fetch(`${service.url}/agents/slow/text`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ input: "linger" }),
    signal: controller.signal,
  });
  const running = await newest("slow", "running");
  assert.equal(running.spans[0].endTime, undefined);
  await until(async () => (await traceOf(running.traceId)).spanCount === 3, "the tool is called");
  controller.abort();
  await assert.rejects(leaving);
  const trace = await newest("slow", "error");
  assert.deepEqual(linesOf(trace.tree), [
    "invoke_agent Slow (slow) ! cancelled",
    "  chat echo (slow)",
    "  execute_tool linger (slow) ! cancelled",
  ]);
});

test("a step that fails after its tries is an error up to the workflow, and tells of the tries", async () => {
  await refused(service.post("/workflows/failing/execute", { input: null }));
  const trace = await newest("failing", "error");
  const [step] = trace.spans.filter(({ name }: Loose) => name === "andThen call");
  assert.deepEqual(
    step.events.map(({ name, attributes }: Loose) => [name, attributes["workflow.step.attempt"]]),
    [["workflow.step.retry", 1]],
  );
  const failed = trace.spans.filter(({ status }: Loose) => status.code === 2).map(({ name }: Loose) => name);
  assert.deepEqual(failed, ["invoke_workflow failing", "andThen call", "execute_tool fail", "execute_tool fail"]);
});

test("a step at its time limit is an error that says so", async () => {
  await refused(service.post("/workflows/late/execute", { input: null }));
  const trace = await newest("late", "error");
  assert.deepEqual(linesOf(trace.tree), [
    "invoke_workflow late (late) ! timed out after 50ms",
    "  andThen hang (late) error ! timed out after 50ms",
  ]);
});

test("a workflow that is cancelled, and the branch that lost a race, are cancelled", async (t) => {
  const probes = watchProbe(t);
  const { id, reply } = client.begin("held", "traced-1");
  await probes.next("hold", id);
  await dataOf(client.command("held", id, "cancel"));
  await reply;
  assert.deepEqual(linesOf((await newest("held", "error")).tree), [
    "invoke_workflow held (held) ! cancelled",
    "  andThen hold (held) cancelled ! cancelled",
  ]);
  await client.execute("race");
  assert.deepEqual(linesOf((await newest("race")).tree), [
    "invoke_workflow race (race)",
    "  andRace first (race) success",
    "    andThen slow (race) cancelled ! cancelled",
    "    andThen quick (race) success",
  ]);
});

describe("traces of POST /workflows/:id/execute: a workflow that suspends", () => {
  test("ends its trace as suspended; resume and replay are traces with a link to the first", async () => {
    const { executionId } = await client.execute("asking");
    const first = await newest("asking");
    assert.deepEqual(linesOf(first.tree), [
      "invoke_workflow asking (asking)",
      "  andThen before (asking) success",
      "  andThen ask (asking) suspended",
    ]);
    const root = first.spans[0];
    assert.deepEqual([root.attributes["workflow.execution.status"], root.status.code], ["suspended", 1]);
    const link = [{ traceId: root.traceId, spanId: root.spanId }];
    await client.resume("asking", executionId);
    const resumed = await newest("asking");
    assert.deepEqual(linesOf(resumed.tree), [
      "invoke_workflow asking (asking)",
      "  andThen ask (asking) success",
      "  andThen after (asking) success",
    ]);
    assert.notEqual(resumed.traceId, first.traceId);
    assert.deepEqual(resumed.spans[0].links, link);
    assert.equal(resumed.spans[0].attributes["workflow.execution.occasion"], "resume");
    assert.equal(resumed.spans[0].attributes["workflow.execution.id"], executionId);
    await dataOf(client.command("asking", executionId, "replay", { stepId: "after" }));
    const replayed = await newest("asking");
    assert.deepEqual(linesOf(replayed.tree), ["invoke_workflow asking (asking)", "  andThen after (asking) success"]);
    assert.deepEqual(replayed.spans[0].links, link);
    assert.equal(replayed.spans[0].attributes["workflow.execution.occasion"], "replay");
  });
});

describe("traceparent", () => {
  const SPAN = "b7ad6b7169203331";
  const post = (path: string, body: object, traceparent: string) => service.post(path, body, { traceparent });

  test("traceparent of a request is continued by agents, workflows and tools", async () => {
    const given: [string, object, string][] = [
      ["/agents/writer/text", { input: "hello" }, "1"],
      ["/agents/writer/stream", { input: "hello" }, "2"],
      ["/workflows/sending/execute", { input: null }, "3"],
      ["/tools/add/execute", { input: { a: 1, b: 2 } }, "4"],
    ];
    for (const [path, body, digit] of given) {
      const traceId = `${MARKER.slice(1)}${digit}`;
      const reply = await post(path, body, `00-${traceId}-${SPAN}-01`);
      assert.equal(reply.status, 200, await reply.text());
      let trace: Loose;
      await until(async () => {
        trace = await traceOf(traceId);
        return trace.spans[0].endTime !== undefined;
      }, `${path} has ended`);
      assert.equal(trace!.spans[0].parentSpanId, SPAN, path);
      assert.equal(new Set(trace!.spans.map((span: Loose) => span.traceId)).size, 1);
    }
  });

  test("a traceparent that is malformed, or says that nothing is recorded, continues nothing", async () => {
    await dataOf(post("/agents/writer/text", { input: "hello" }, `00-${MARKER}-${SPAN}`));
    assert.notEqual((await historyOf("writer")).traceId, MARKER);
    await dataOf(post("/agents/writer/text", { input: "hello" }, `00-${MARKER}-${SPAN}-00`));
    assert.equal((await historyOf("writer")).traceId, undefined);
    assert.equal((await refused(service.get(`/observability/traces/${MARKER}`))).status, 404);
  });
});

test("with sample 0 nothing is traced: no trace, none in the history, no telemetry of agents", async (t) => {
  const quiet = await startWorkflows(t, WORKFLOWS, { ...MANIFEST, observability: { sample: 0 } });
  await quiet.execute("letter", { who: "Ada" });
  await dataOf(quiet.service.post("/tools/add/execute", { input: { a: 1, b: 2 } }));
  const { traces } = await dataOf(quiet.service.get("/observability/traces"));
  assert.deepEqual(traces, []);
  const { entries } = await dataOf(quiet.service.get("/agents/planner/history"));
  assert.ok(!("traceId" in entries[0]));
  for (const { isTelemetryEnabled } of await dataOf(quiet.service.get("/agents")))
    assert.equal(isTelemetryEnabled, false);
});

test("stop sequences are content: cleaned as such, and none with none", async (t) => {
  const options = { stopSequences: ["END", "sk-proj-abc1234567890abcdef"] };
  const stopsOf = async (of: Client) => {
    await dataOf(of.service.post("/agents/writer/text", { input: "hello", options }));
    return only(await newest("writer", "completed", of), "chat echo").attributes["gen_ai.request.stop_sequences"];
  };
  assert.deepEqual(await stopsOf(client), ["END", "[redacted]"]);
  const silent = await startWorkflows(t, {}, { ...MANIFEST, observability: { content: "none" } });
  assert.equal(await stopsOf(silent), undefined);
});

test("GET /observability/traces/:traceId of a trace that callers went on with for ever is bounded", async () => {
  const traceId = `${MARKER.slice(2)}99`;
  const headers = { traceparent: `00-${traceId}-b7ad6b7169203331-01` };
  const input = { msg: "pen ".repeat(2000) };
  for (let round = 0; round < 16; round++) {
    const calls = Array.from({ length: 50 }, () => service.post("/tools/log/execute", { input }, headers));
    for (const reply of await Promise.all(calls)) await reply.text();
  }
  const reply = await (await service.get(`/observability/traces/${traceId}`)).text();
  assert.ok(reply.length > 4 * 1024 * 1024 && reply.length < 12 * 1024 * 1024, String(reply.length));
});

test("secrets of the environment, of the request and of tools are in no trace; an agent's answer is", async (t) => {
  const env = { ...process.env, SERVICE_CONSOLE_ACCESS_KEY: "console-key-of-tests", PARTNER: "from-the-environment" };
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the manifest writes references to the environment so.
  const manifest = { ...MANIFEST, "x-partner": "${PARTNER}" };
  const careful = await startWorkflows(t, {}, manifest, { env });
  const said = "console-key-of-tests from-the-environment ada@example.org 4111 1111 1111 1111 and tea";
  await dataOf(careful.service.post("/agents/writer/text", { input: said }));
  await refused(careful.service.post("/tools/add/execute", { input: { a: { password: "hunter2" }, b: 1 } }));
  for (const entity of ["writer", "add"]) {
    const trace = JSON.stringify(await newest(entity, entity === "add" ? "error" : "completed", careful));
    for (const secret of ["console-key", "from-the-env", "ada@", "4111", "hunter2"]) {
      assert.ok(!trace.includes(secret), `${secret} in ${trace}`);
    }
    assert.ok(trace.includes(entity === "add" ? "[redacted]" : "and tea"));
  }
});
