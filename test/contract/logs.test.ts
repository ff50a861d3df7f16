// biome-ignore-all lint/suspicious/noTemplateCurlyInString: placeholders of the manifest
/** Contract, "Observability, logs, updates, discovery": lines of the log. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { FIXTURES } from "../support/fixtures.ts";
import { dataOf, errorOf, type Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { token } from "../support/tokens.ts";

const KEY = "sk-live-77aa1200";
const PROMPT = "the plan of the red submarine";
const TRACE = "0af7651916cd43dd8448eb211c80319c";
const SPAN = "b7ad6b7169203331";

const WORKFLOWS = {
  failing: { steps: [{ id: "no", andThen: { tool: "fail", input: { how: "now" } } }] },
  noting: { steps: [{ id: "note", andThen: { tool: "log", input: { msg: "{{ input.msg }}" } } }] },
  asking: { steps: [{ id: "ask", andAgent: { agent: "assistant", prompt: "log this" } }] },
};
const LOGGING = manifestWith(
  { tools: ["log"], model: ["demo/broken", "demo/echo"] },
  {
    logs: { level: "info", buffer: 300 },
    tools: { log: { use: "log" }, fail: { use: "fail" } },
    workflows: WORKFLOWS,
    providers: {
      demo: {
        use: "scripted",
        replies: [{ when: "log this", call: { tool: "log", input: { msg: "in a run" } }, then: "done" }],
        models: { broken: { replies: [{ error: "unavailable" }] } },
      },
      up: { use: "openai-compatible", baseURL: "http://127.0.0.1:1", apiKey: "${TEST_KEY}", retries: 0 },
    },
  },
);

const REMOTE = { name: "Remote", instructions: PROMPT, model: ["up/x", "demo/echo"], memory: false };
const MANIFEST = { ...LOGGING, agents: { ...(LOGGING.agents as object), remote: REMOTE } };
const OPTIONS = { plugins: [FIXTURES], env: { ...process.env, TEST_KEY: KEY } };

describe("the log over HTTP", () => {
  let service: TestService;
  const over: (() => unknown)[] = [];
  before(async () => {
    service = await startService({ after: (work) => void over.push(work as () => unknown) }, MANIFEST, OPTIONS);
  });
  after(async () => {
    for (const work of over) await work();
  });

  const log = async (msg: string, level = "info", bindings: object = {}) =>
    dataOf(service.post("/tools/log/execute", { input: { msg, level, bindings } }));
  const list = async (query: string): Promise<Loose> => (await service.get(`/api/logs?${query}`)).json();
  const records = (query: string): Promise<Loose> => dataOf(service.get(`/observability/logs?${query}`));

  test("GET /api/logs: the newest first, with what was bound to them, how many match, and what was asked", async () => {
    for (const msg of ["first", "second", "third"]) await log(msg, "warn", { executionId: "listed" });
    const { success, data, total, query } = await list("executionId=listed&limit=2");
    assert.deepEqual(
      data.map(({ msg }: Loose) => msg),
      ["third", "second"],
    );
    assert.deepEqual([success, total, query], [true, 3, { executionId: "listed", limit: 2 }]);
    const [{ timestamp, requestId, ...rest }] = data;
    assert.match(timestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    assert.ok(requestId.length > 8);
    assert.deepEqual(rest, { level: "warn", msg: "third", executionId: "listed", tool: "log" });
  });

  test("GET /api/logs: level is the least, since and until are inclusive; without a match the list is empty", async () => {
    for (const level of ["info", "warn", "error", "fatal"]) await log(level, level, { executionId: "graded" });
    const levels = async (query: string) =>
      (await list(`executionId=graded&${query}`)).data.map(({ level }: Loose) => level);
    assert.deepEqual(await levels("level=error"), ["fatal", "error"]);
    assert.deepEqual(await levels("level=trace"), ["fatal", "error", "warn", "info"]);
    const { data } = await list("executionId=graded");
    const [newest, oldest] = [data[0].timestamp, data[3].timestamp];
    assert.equal((await levels(`since=${oldest}&until=${newest}`)).length, 4);
    assert.deepEqual(await levels(`since=${new Date(Date.parse(newest) + 1).toISOString()}`), []);
    assert.deepEqual(await levels("until=2020-01-01"), []);
    assert.equal((await levels("since=0000-01-01&until=9999-12-31T23:59:59-05:00")).length, 4);
    assert.deepEqual((await list("executionId=unheard-of")).total, 0);
  });

  test("GET /api/logs, GET /observability/logs: a parameter that does not parse is 400, and named", async () => {
    const CASES: [path: string, error: RegExp][] = [
      ["/api/logs?limit=abc", /limit must be integer/],
      ["/api/logs?limit=1001", /limit must be <= 1000/],
      ["/api/logs?limit=0", /limit must be >= 1/],
      ["/api/logs?level=loud", /level must be one of/],
      ["/api/logs?since=yesterday", /since must be an ISO 8601 timestamp/],
      ["/api/logs?until=2026-02-30", /until must be an ISO 8601 timestamp/],
      ["/api/logs?agentId=", /agentId must/],
      ["/observability/logs?severityText=loud", /severityText must be one of/],
      ["/observability/logs?severityNumber=25", /severityNumber must be <= 24/],
      ["/observability/logs?traceId=xyz", /traceId must match/],
      ["/observability/logs?spanId=0", /spanId must match/],
      ["/observability/logs?startTime=1", /startTime must be an ISO 8601 timestamp/],
      ["/observability/logs?endTime=1", /endTime must be an ISO 8601 timestamp/],
      [`/observability/traces/${TRACE}/logs?limit=x`, /limit must be integer/],
    ];
    for (const [path, error] of CASES) {
      const answer = await errorOf(service.get(path));
      assert.equal(answer.status, 400, path);
      assert.match(answer.error, error);
    }
  });

  test("POST /workflows/:id/execute: an execution that fails writes one warn line, which names it, its step and the error", async () => {
    const options = { executionId: "e-failed", userId: "ada" };
    const { status } = await errorOf(service.post("/workflows/failing/execute", { input: {}, options }));
    assert.equal(status, 500);
    const { data: lines } = await list("level=warn&workflowId=failing&executionId=e-failed");
    assert.deepEqual(
      lines.map(({ msg, stepId, userId }: Loose) => [msg, stepId, userId]),
      [["the execution failed at step no: the shop is closed", "no", "ada"]],
    );
  });

  test("lines of a run say which: agent, conversation, user, tool; of an execution, workflow and step too", async () => {
    const options = { memory: { userId: "ada", conversationId: "c-1" } };
    const headers = { "x-request-id": "request-of-the-run" };
    await dataOf(service.post("/agents/assistant/text", { input: "log this", options }, headers));
    const { data: run } = await list("agentId=assistant&conversationId=c-1");
    assert.deepEqual(
      run.map(({ msg }: Loose) => msg),
      ["model unavailable, falling back", "in a run", "model unavailable, falling back"],
    );
    const names = { requestId: "request-of-the-run", agentId: "assistant", conversationId: "c-1", userId: "ada" };
    const { timestamp: _, level: _level, msg: _msg, traceId, spanId, ...bound } = run[1];
    assert.deepEqual(bound, { ...names, tool: "log" });
    for (const path of [`traces/${traceId}`, `spans/${spanId}`])
      assert.ok((await dataOf(service.get(`/observability/${path}/logs`))).count >= 1, path);

    const executing = { input: { msg: "in a step" }, options: { executionId: "e-1", userId: "ada" } };
    await dataOf(service.post("/workflows/noting/execute", executing));
    const { data: step } = await list("workflowId=noting&executionId=e-1");
    const { workflowId, executionId, stepId, userId, tool } = step[0];
    assert.deepEqual([workflowId, executionId, stepId, userId, tool], ["noting", "e-1", "note", "ada", "log"]);

    await dataOf(service.post("/workflows/asking/execute", { input: {}, options: { executionId: "e-2" } }));
    const { data: both } = await list("executionId=e-2&agentId=assistant&workflowId=asking");
    assert.deepEqual([both[1].msg, both[1].stepId], ["in a run", "ask"]);
  });

  test("GET /observability/logs: records in OpenTelemetry's form, by trace, span, entity, severity and words", async () => {
    await log("of a span", "warn", { traceId: TRACE, spanId: SPAN, agentId: "writer", count: 3 });
    const { logs, count } = await records(`traceId=${TRACE}`);
    const { timestamp, attributes, ...rest } = logs[0];
    assert.equal(count, 1);
    assert.ok(Number.isFinite(Date.parse(timestamp)));
    const { requestId: _, ...bound } = attributes;
    assert.deepEqual(rest, {
      severityNumber: 13,
      severityText: "WARN",
      body: "of a span",
      traceId: TRACE,
      spanId: SPAN,
    });
    assert.deepEqual(bound, {
      "entity.type": "agent",
      "entity.id": "writer",
      agentId: "writer",
      count: 3,
      tool: "log",
    });
    const counts = async (query: string) => (await records(query)).count;
    assert.equal(await counts(`spanId=${SPAN}&entityId=writer&severityText=warn&search=OF+A+SPAN`), 1);
    assert.equal(await counts(`traceId=${TRACE}&severityNumber=14`), 0);
    assert.equal(await counts(`traceId=${TRACE}&severityText=ERROR`), 0);
    assert.equal(await counts(`traceId=${TRACE}&endTime=2020-01-01`), 0);
    assert.equal(await counts(`traceId=${TRACE}&startTime=2020-01-01&severityText=TRACE&severityNumber=13`), 1);
    assert.equal(await counts("entityId=nobody"), 0);
    assert.equal(await counts("search=no+line+says+this"), 0);
  });

  test("GET /observability/traces/:traceId/logs, GET /observability/spans/:spanId/logs: those of one; unknown is 404", async () => {
    for (const msg of ["begun", "ended"])
      await log(msg, "info", { traceId: "1".repeat(32), spanId: "2".repeat(16), entity: { traceId: TRACE } });
    for (const path of [`traces/${"1".repeat(32)}`, `spans/${"2".repeat(16)}`]) {
      const { logs, count } = await dataOf(service.get(`/observability/${path}/logs`));
      assert.deepEqual([logs.map(({ body }: Loose) => body), count], [["ended", "begun"], 2]);
      assert.equal((await dataOf(service.get(`/observability/${path}/logs?limit=1`))).count, 1);
    }
    for (const path of [`traces/${"f".repeat(32)}`, "traces/x", `spans/${"f".repeat(16)}`]) {
      assert.equal((await errorOf(service.get(`/observability/${path}/logs`))).status, 404);
    }
  });

  test("neither the lines that are kept nor those that are written hold a secret or a prompt", async () => {
    const web = token({ sub: "ada" });
    const planted = {
      authorization: "Basic planted-1",
      headers: { Cookie: "planted-2", "X-Console-Access-Key": "planted-3" },
      deep: [{ a: { client_secret: "planted-4", apiKey: "planted-5" } }],
      said: `${KEY} and ${web} in a text`,
      url: "https://example.com/?key=planted-6&x=1",
    };
    await log(`sent Bearer planted-7 to ?token=planted-8 and ${KEY}`, "info", { executionId: "planted", ...planted });
    await log(KEY, "error", { executionId: "planted", err: { message: `${KEY} is refused`, token: "planted-9" } });
    const secretive = { authorization: `Bearer ${web}`, "x-console-access-key": "planted-3" };
    await service.get("/agents?key=planted-6&token=planted-8", secretive);
    // What the client of the model throws is logged when another model takes over.
    await dataOf(service.post("/agents/remote/text", { input: PROMPT }));
    assert.match((await list("agentId=remote")).data[0].err.message, /ECONNREFUSED/);
    const { data } = await list("limit=1000");
    assert.equal(data.filter(({ executionId }: Loose) => executionId === "planted").length, 2);
    for (const text of [JSON.stringify(data), JSON.stringify(service.log)]) {
      assert.doesNotMatch(text, /planted-\d/);
      for (const secret of [KEY, web, PROMPT]) assert.ok(!text.includes(secret), secret);
    }
    const [second, first] = data.filter(({ executionId }: Loose) => executionId === "planted");
    assert.equal(first.msg, "sent Bearer *** to ?token=*** and ***");
    assert.deepEqual([second.msg, second.err], ["***", { message: "*** is refused", token: "***" }]);
  });

  test("logs.buffer bounds how many are kept, and the oldest go first", async () => {
    for (let index = 0; index < 350; index++) service.logger.info({ executionId: "many" }, `line ${index}`);
    const { data, total } = await list("executionId=many&limit=1000");
    assert.deepEqual([total, data[0].msg, data.at(-1).msg], [300, "line 349", "line 50"]);
  });
});

test("what is below logs.level is neither written nor kept", async (t) => {
  const service = await startService(t, { ...MANIFEST, logs: { level: "error" } }, OPTIONS);
  for (const level of ["warn", "error"]) await service.post("/tools/log/execute", { input: { msg: level, level } });
  const { data } = (await (await service.get("/api/logs")).json()) as Loose;
  assert.deepEqual(
    data.map(({ msg }: Loose) => msg),
    ["error"],
  );
  assert.deepEqual(
    service.log.map(({ msg }) => msg),
    ["error"],
  );
});
