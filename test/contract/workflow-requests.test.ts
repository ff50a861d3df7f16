/** Contract, "Workflows": what a request may say, what is refused and how; the streams of executions over HTTP. */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { validators } from "../../generated/all-validators.js";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, parseEvents, startService } from "../support/service.ts";

const MANIFEST = manifestWith(
  {},
  {
    workflows: {
      flow: {
        input: { type: "object", properties: { n: { type: "number" } }, required: ["n"] },
        steps: [{ id: "one", andThen: { set: { n: "{{ input.n + 1 }}" } } }],
      },
      asking: {
        name: "Asking",
        purpose: "Asks",
        resume: { type: "object", properties: { yes: { type: "boolean" } }, required: ["yes"] },
        steps: [
          { id: "ask", name: "Ask", andThen: { suspend: { reason: "Yes?", data: { question: 1 } } } },
          { id: "after", andThen: { set: { done: "{{ data.yes }}" } } },
        ],
      },
    },
  },
);

async function refusedWith(reply: Promise<Response>, status: number, message: RegExp): Promise<void> {
  const response = await reply;
  const body = (await response.json()) as Loose;
  assert.deepEqual([response.status, body.success], [status, false], JSON.stringify(body));
  assert.match(body.error, message);
}

const dataOf = async (reply: Promise<Response>): Promise<Loose> => {
  const response = await reply;
  const body = (await response.json()) as Loose;
  assert.equal(response.status, 200, JSON.stringify(body));
  return body.data;
};

/** What is run here has an id of its own, and is run nowhere else. */
const service = await startService({ after }, MANIFEST);
/** Nothing is ever run here. */
const idle = await startService({ after }, MANIFEST);

const execute = (workflow: string, input: unknown, options: object = {}, at = service) =>
  dataOf(at.post(`/workflows/${workflow}/execute`, { input, options }));

await execute("flow", { n: 1 }, { executionId: "f1" });

interface Numbered {
  id: number;
  type: string;
  event: Loose;
}

async function eventsOf(reply: Promise<Response>): Promise<Numbered[]> {
  const response = await reply;
  assert.equal(response.status, 200);
  return parseEvents(await response.text()).map(({ id, data }) => {
    const event = JSON.parse(data) as Loose;
    assert.ok(
      validators.WorkflowStreamEvent(event),
      `${data} ${JSON.stringify(validators.WorkflowStreamEvent.errors)}`,
    );
    return { id: Number(id), type: event.type, event };
  });
}

const numbers = (events: Numbered[]) => events.map(({ id }) => id);
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index);

describe("GET /workflows/executions", () => {
  for (const [query, message] of [
    ["limit=abc", /^limit must be integer$/],
    ["limit=0", /^limit must be >= 1$/],
    ["limit=501", /^limit must be <= 500$/],
    ["limit=", /^limit must be integer$/],
    ["limit=1.5", /^limit must be integer$/],
    ["offset=-1", /^offset must be >= 0$/],
    ["status=foo", /^status must be one of "running", "suspended"/],
    ["status=", /^status must be one of/],
    ["from=yesterday", /^from must be an ISO 8601 timestamp/],
    ["to=2026-13-01", /^to must be an ISO 8601 timestamp/],
    ["to=2026-02-30", /^to must be an ISO 8601 timestamp/],
    ["from=", /^from must be an ISO 8601 timestamp/],
    ["workflowId=", /^workflowId must NOT have fewer than 1 characters$/],
    ["metadata=", /^metadata must be a JSON object such as/],
    ["metadata=sales", /^metadata must be a JSON object such as/],
    ["metadata={team", /^metadata must be a JSON object such as/],
    ["metadata=[]", /^metadata must be a JSON object such as/],
    ["metadata=[1]", /^metadata must be a JSON object such as/],
    ["metadata=null", /^metadata must be a JSON object such as/],
    ["metadata=%227%22", /^metadata must be a JSON object such as/],
    [`metadata.a=${"x".repeat(5000)}`, /^metadata\.a must not be longer than 4096 characters$/],
    [`metadata={"a":${"[".repeat(300)}${"]".repeat(300)}}`, /^metadata is nested too deeply$/],
    [Array.from({ length: 65 }, (_, n) => `metadata.k${n}=1`).join("&"), /^metadata must not name more than 64 keys$/],
    ["metadata.=x", /^metadata\. needs the name of a key/],
    ["limit=abc&status=foo", /^status must be one of .*; limit must be integer$/],
  ] as const) {
    test(`GET /workflows/executions?${query.slice(0, 40)} is 400`, async () => {
      await refusedWith(service.get(`/workflows/executions?${query}`), 400, message);
    });
  }

  test("GET /workflows/executions: an unknown workflowId is 404, an unknown parameter is ignored", async () => {
    await refusedWith(service.get("/workflows/executions?workflowId=none"), 404, /does not exist/);
    assert.deepEqual(await dataOf(idle.get("/workflows/executions?color=red&page=2")), []);
  });

  test("GET /workflows/executions: metadata filters by JSON and by key, text or JSON value; status by its aliases", async (t) => {
    const service = await startService(t, MANIFEST);
    const metadata = { team: "sales", n: 7, deep: { a: [1] }, "a.b": true, none: "" };
    await execute("flow", { n: 1 }, { executionId: "f1", metadata }, service);
    const other = { executionId: "f2", metadata: { team: "sales", n: "7" }, userId: "ada" };
    await execute("flow", { n: 1 }, other, service);
    await execute("asking", 1, { executionId: "a1" }, service);
    const ids = async (query: string) =>
      (await dataOf(service.get(`/workflows/executions?${query}`))).map(({ id }: Loose) => id);
    const json = (value: unknown) => `metadata=${encodeURIComponent(JSON.stringify(value))}`;
    assert.deepEqual(await ids(""), ["a1", "f2", "f1"]);
    assert.deepEqual(await ids("metadata.team=sales"), ["f2", "f1"]);
    assert.deepEqual(await ids("metadata.n=7"), ["f2", "f1"]);
    assert.deepEqual(await ids("metadata.a.b=true"), ["f1"]);
    assert.deepEqual(await ids("metadata.none="), ["f1"]);
    assert.deepEqual(await ids(json({ n: 7 })), ["f1"]);
    assert.deepEqual(await ids(`${json({ team: "sales" })}&metadata.n=%227%22`), ["f2"]);
    assert.deepEqual(await ids(json({ deep: { a: [1] } })), ["f1"]);
    assert.deepEqual(await ids(json({ toString: 1 })), []);
    assert.deepEqual(await ids("status=success"), ["f2", "f1"]);
    assert.deepEqual(await ids("status=pending"), []);
    assert.deepEqual(await ids("status=suspended&workflowId=asking"), ["a1"]);
    assert.deepEqual(await ids("userId=ada"), ["f2"]);
    assert.deepEqual(await ids("limit=1&offset=1"), ["f2"]);
    assert.deepEqual(await ids("from=2100-01-01"), []);
  });
});

describe("bodies of workflow requests", () => {
  for (const [title, body, message] of [
    ["without input", {}, /^input is required$/],
    ["with input that fails the schema", { input: { n: "x" } }, /^input\.n must be number$/],
    [
      "with an executionId of odd characters",
      { input: { n: 1 }, options: { executionId: "a b" } },
      /options\.executionId must be 1 to 128 letters, digits/,
    ],
    [
      "with a too long executionId",
      { input: { n: 1 }, options: { executionId: "a".repeat(129) } },
      /options\.executionId must be 1 to 128 letters, digits/,
    ],
    [
      "with a context that is no object",
      { input: { n: 1 }, options: { context: [] } },
      /^options\.context must be object$/,
    ],
    [
      "with state that is no object",
      { input: { n: 1 }, options: { workflowState: 1 } },
      /^options\.workflowState must be object$/,
    ],
    [
      "with metadata that is no object",
      { input: { n: 1 }, options: { metadata: "x" } },
      /^options\.metadata must be object$/,
    ],
    ["with an empty userId", { input: { n: 1 }, options: { userId: "" } }, /^options\.userId must NOT have fewer/],
    ["that is no object", [1], /^body must be object$/],
  ] as const) {
    for (const action of ["execute", "stream"]) {
      test(`POST /workflows/:id/${action} ${title} is 400`, async () => {
        await refusedWith(idle.post(`/workflows/flow/${action}`, body), 400, message);
        assert.deepEqual(await dataOf(idle.get("/workflows/executions")), []);
      });
    }
  }

  test("POST .../replay needs a stepId, and an object as workflowStateOverride", async () => {
    const path = "/workflows/flow/executions/f1/replay";
    await refusedWith(service.post(path, {}), 400, /^stepId is required$/);
    await refusedWith(service.post(path, { stepId: "one", workflowStateOverride: 1 }), 400, /must be object$/);
    await refusedWith(service.post(path, { stepId: "none" }), 400, /none/);
  });

  test("POST .../suspend, resume and cancel take a request without a body; a reason must be a string", async () => {
    const asked = "/workflows/asking/executions/a1";
    const post = (path: string) => fetch(service.url + path, { method: "POST" });
    await execute("asking", 1, { executionId: "a1" });
    await refusedWith(post(`${asked}/suspend`), 400, /suspended/);
    await refusedWith(post(`${asked}/resume`), 400, /resume/i);
    await refusedWith(service.post(`${asked}/cancel`, { reason: 1 }), 400, /^reason must be string$/);
    const cancelled = await dataOf(post(`${asked}/cancel`));
    assert.deepEqual([cancelled.executionId, cancelled.status], ["a1", "cancelled"]);
    assert.ok(validators.ExecutionCancellation(cancelled));
    await refusedWith(post(`${asked}/cancel`), 400, /cancelled/);
    await refusedWith(post(`${asked}/resume`), 404, /./);
  });
});

describe("unknown workflows and executions are 404", () => {
  const LONG = "x".repeat(200);
  for (const [method, path, body] of [
    ["GET", "/workflows/none", undefined],
    ["POST", "/workflows/none/execute", { input: 1 }],
    ["POST", "/workflows/none/stream", { input: 1 }],
    ["GET", "/workflows/none/executions/f1/state", undefined],
    ...["none", LONG, "000000000-0123456789abcdef"].flatMap((id) => [
      ["GET", `/workflows/flow/executions/${id}/state`, undefined] as const,
      ["GET", `/workflows/flow/executions/${id}/stream`, undefined] as const,
      ["POST", `/workflows/flow/executions/${id}/suspend`, {}] as const,
      ["POST", `/workflows/flow/executions/${id}/resume`, {}] as const,
      ["POST", `/workflows/flow/executions/${id}/cancel`, {}] as const,
      ["POST", `/workflows/flow/executions/${id}/replay`, { stepId: "one" }] as const,
    ]),
    ["GET", "/workflows/asking/executions/f1/state", undefined],
    ["GET", "/workflows/asking/executions/f1/stream", undefined],
    ["POST", "/workflows/asking/executions/f1/replay", { stepId: "ask" }],
  ] as const) {
    test(`${method} ${path.slice(0, 70)} is 404: nothing of that id exists`, async () => {
      await refusedWith(method === "GET" ? service.get(path) : service.post(path, body), 404, /./);
    });
  }
});

describe("streams of executions", () => {
  test("POST /workflows/:id/stream: numbered from 1; the last event is workflow-result", async () => {
    const events = await eventsOf(service.post("/workflows/flow/stream", { input: { n: 1 } }));
    assert.deepEqual(
      events.map(({ type }) => type),
      ["workflow-start", "step-start", "step-complete", "workflow-complete", "workflow-result"],
    );
    assert.deepEqual(numbers(events), range(1, 5));
    assert.deepEqual(events.at(-1)!.event.result, { n: 2 });
  });

  test("GET .../stream: the same events again, from where Last-Event-ID or fromSequence says", async () => {
    const options = { executionId: "f2" };
    const told = await eventsOf(service.post("/workflows/flow/stream", { input: { n: 1 }, options }));
    const path = "/workflows/flow/executions/f2/stream";
    assert.deepEqual(await eventsOf(service.get(path)), told);
    assert.deepEqual(await eventsOf(service.get(`${path}?fromSequence=3`)), told.slice(3));
    assert.deepEqual(await eventsOf(service.get(path, { "last-event-id": "4" })), told.slice(4));
    assert.deepEqual(await eventsOf(service.get(`${path}?fromSequence=1`, { "last-event-id": "4" })), told.slice(4));
    assert.deepEqual(await eventsOf(service.get(`${path}?fromSequence=3`, { "last-event-id": "" })), told.slice(3));
    assert.deepEqual(await eventsOf(service.get(`${path}?fromSequence=99`)), []);
  });

  test("GET .../stream: ends at a suspension, and after the resume the numbers go on", async () => {
    const asked = "/workflows/asking/executions/a2";
    await execute("asking", { a: 1 }, { executionId: "a2" });
    const before = await eventsOf(service.get(`${asked}/stream`));
    assert.equal(before.at(-1)!.type, "workflow-result");
    assert.equal(before.at(-1)!.event.status, "suspended");
    await dataOf(service.post(`${asked}/resume`, { resumeData: { yes: true } }));
    const after = await eventsOf(service.get(`${asked}/stream?fromSequence=${before.length}`));
    assert.deepEqual(after[0]!.event.metadata, { resumed: true, stepId: "ask" });
    assert.deepEqual(numbers(after), range(before.length + 1, before.length + after.length));
    assert.deepEqual(after.at(-1)!.event.result, { done: true });
    assert.deepEqual(await eventsOf(service.get(`${asked}/stream`)), [...before, ...after]);
  });

  test("POST /workflows/:id/stream: the parts of an agent step that streams come as agent-part, in order and numbered", async (t) => {
    const workflows = {
      letter: { steps: [{ id: "write", andAgent: { agent: "assistant", prompt: "Hello there", stream: true } }] },
    };
    const service = await startService(t, { ...MANIFEST, workflows });
    const events = await eventsOf(service.post("/workflows/letter/stream", { input: 1 }));
    assert.deepEqual(numbers(events), range(1, events.length));
    const parts = events.filter(({ type }) => type === "agent-part");
    assert.ok(parts.every(({ event }) => event.from === "write" && event.stepType === "andAgent"));
    const text = parts.map(({ event }) => (event.data.type === "text-delta" ? event.data.delta : "")).join("");
    assert.deepEqual(events.at(-1)!.event.result, { text });
    assert.equal(text, "Hello there");
  });

  for (const [query, header, message] of [
    ["?fromSequence=abc", "", /^fromSequence must be integer$/],
    ["?fromSequence=-1", "", /^fromSequence must be >= 0$/],
    ["?fromSequence=", "", /^fromSequence must be integer$/],
    ["", "abc", /^Last-Event-ID must be the number of an event$/],
    ["?fromSequence=5", "-1", /^Last-Event-ID must be the number of an event$/],
    ["", "1e3", /^Last-Event-ID must be the number of an event$/],
    ["", "9".repeat(30), /^Last-Event-ID must be the number of an event$/],
  ] as const) {
    test(`GET .../stream${query} with Last-Event-ID "${header}" is 400`, async () => {
      const headers: Record<string, string> = header === "" ? {} : { "last-event-id": header };
      await refusedWith(service.get(`/workflows/flow/executions/f1/stream${query}`, headers), 400, message);
    });
  }
});
