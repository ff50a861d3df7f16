/** `GET /approvals`, `POST /approvals/:approvalId`, and tools that wait for them on `POST /tools/:name/execute`. */
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { AUTH, as, CONSOLE, ran, serveApprovals } from "../support/approvals.ts";
import { until } from "../support/probe.ts";
import { dataOf, errorOf, type Loose } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";

type Headers = Record<string, string>;

beforeEach(() => void ran.splice(0));

const pay = (service: TestService, amount: number, headers: Headers = {}, context?: object) =>
  service.post("/tools/pay/execute", { input: { amount }, context }, headers);

/** Asks, and gives the id of the question. */
async function ask(service: TestService, amount = 5, headers: Headers = {}): Promise<string> {
  const reply = await pay(service, amount, headers);
  assert.equal(reply.status, 409, await reply.text());
  return reply.headers.get("x-approval-id")!;
}
const answer = (service: TestService, id: string, body: object, headers: Headers = {}) =>
  service.post(`/approvals/${id}`, body, headers);
const withId = (id: string, headers: Headers = {}) => ({ ...headers, "x-approval-id": id });

test("POST /tools/:name/execute: the same call runs once with the id of its approval, and before that it is 409", async (t) => {
  const service = await serveApprovals(t);
  const first = await pay(service, 5);
  const id = first.headers.get("x-approval-id")!;
  assert.match(id, /^[0-9a-f]{32}$/);
  assert.deepEqual(await errorOf(first), {
    status: 409,
    error: 'tool "pay" needs a person\'s approval: it has been asked for',
  });
  assert.equal((await pay(service, 5, withId(id))).status, 409, "still open");
  const { decidedAt, decidedBy, status, reason } = await dataOf(answer(service, id, { approved: true, reason: "ok" }));
  assert.deepEqual([status, reason, decidedBy, typeof decidedAt], ["approved", "ok", "anonymous", "string"]);
  assert.deepEqual(ran, []);

  const { result } = await dataOf(pay(service, 5, withId(id)));
  assert.equal(result.paid, 5);
  const again = await errorOf(pay(service, 5, withId(id)));
  assert.deepEqual(again, { status: 409, error: `approval ${id} has been used: a call runs once` });
  assert.deepEqual(ran, [5]);
});

test("POST /tools/:name/execute: forty calls at once with one approval run the tool once", async (t) => {
  const service = await serveApprovals(t);
  const id = await ask(service);
  await dataOf(answer(service, id, { approved: true }));
  const replies = await Promise.all(Array.from({ length: 40 }, () => pay(service, 5, withId(id))));
  const statuses = replies.map(({ status }) => status).sort();
  assert.deepEqual([statuses[0], statuses[1], ran], [200, 409, [5]]);
});

test("POST /tools/:name/execute: a call that is asked for again while it is open is the same question", async (t) => {
  const service = await serveApprovals(t);
  const ids = await Promise.all(Array.from({ length: 20 }, () => ask(service)));
  assert.equal(new Set(ids).size, 1);
  assert.notEqual(await ask(service, 6), ids[0], "another input is another question");
  assert.equal((await dataOf(service.get("/approvals"))).length, 2);
});

test("POST /tools/:name/execute: an approval is good for its input, context, tool and user alone", async (t) => {
  const other = { use: "pay", approval: true };
  const service = await serveApprovals(t, { auth: AUTH, tools: { pay: other, other } });
  const id = await ask(service, 5, as("ada"));
  await dataOf(answer(service, id, { approved: true }, as("ada")));
  const calls = [
    pay(service, 6, withId(id, as("ada"))),
    pay(service, 5, withId(id, as("ada")), { tenant: "b" }),
    pay(service, 5, withId(id, as("bob"))),
    pay(service, 5, withId("0".repeat(32), as("ada"))),
    service.post("/tools/other/execute", { input: { amount: 5 } }, withId(id, as("ada"))),
  ];
  for (const call of calls) {
    const { status, error } = await errorOf(call);
    assert.equal(status, 409);
    assert.match(error, /^x-approval-id names no approval of this call/);
  }
  assert.deepEqual(ran, []);
  assert.equal((await dataOf(pay(service, 5, withId(id, as("ada"))))).result.paid, 5);
});

test("POST /approvals/:approvalId: an input in the answer is checked, and runs in place of the one that was asked", async (t) => {
  const service = await serveApprovals(t);
  const id = await ask(service, 500);
  const unfit = await errorOf(answer(service, id, { approved: true, input: { amount: "5" } }));
  assert.deepEqual(unfit, { status: 400, error: "input.amount must be number" });
  const denied = await errorOf(answer(service, id, { approved: false, input: { amount: 5 } }));
  assert.deepEqual(denied, { status: 400, error: "input belongs to an answer with approved: true" });
  const { input, approvedInput } = await dataOf(answer(service, id, { approved: true, input: { amount: 50 } }));
  assert.deepEqual([input, approvedInput], [{ amount: 500 }, { amount: 50 }]);
  // The call is still that which was asked.
  assert.equal((await dataOf(pay(service, 500, withId(id)))).result.paid, 50);
  assert.deepEqual(ran, [50]);
});

test("POST /approvals/:approvalId: a no is told with its reason, and the same call may ask again", async (t) => {
  const service = await serveApprovals(t);
  const id = await ask(service);
  await dataOf(answer(service, id, { approved: false, reason: "not this month" }));
  const refused = await errorOf(pay(service, 5, withId(id)));
  assert.deepEqual(refused, { status: 409, error: 'tool "pay" was refused: not this month' });
  assert.notEqual(await ask(service), id);
  assert.deepEqual(ran, []);
});

test("POST /approvals/:approvalId: the same answer twice is one decision, another one is 409", async (t) => {
  const service = await serveApprovals(t);
  const id = await ask(service);
  const first = await dataOf(answer(service, id, { approved: true, reason: "first" }));
  assert.deepEqual(await dataOf(answer(service, id, { approved: true, reason: "second" })), first);
  const other = await errorOf(answer(service, id, { approved: false }));
  assert.deepEqual(other, { status: 409, error: "the approval is already approved" });
  assert.equal((await errorOf(answer(service, id, { approved: true, input: { amount: 1 } }))).status, 409);
});

test("POST /approvals/:approvalId: of twenty yes and twenty no at once, one side wins as a whole", async (t) => {
  const service = await serveApprovals(t);
  const id = await ask(service);
  const said = Array.from({ length: 40 }, (_, index) => index % 2 === 0);
  const replies = await Promise.all(said.map((approved) => answer(service, id, { approved })));
  const accepted = said.filter((_, index) => replies[index]!.status === 200);
  assert.equal(accepted.length, 20);
  assert.equal(new Set(accepted).size, 1);
});

test("GET /approvals: users see and answer their own, the console all of them", async (t) => {
  const service = await serveApprovals(t, { auth: AUTH });
  const [of, foreign] = [await ask(service, 5, as("ada")), await ask(service, 5, as("bob"))];
  const ids = async (headers: Headers) =>
    (await dataOf(service.get("/approvals", headers))).map(({ approvalId }: { approvalId: string }) => approvalId);
  assert.deepEqual(await ids(as("ada")), [of]);
  assert.deepEqual(await ids(CONSOLE), [of, foreign]);
  const ofBob = await dataOf(service.get("/approvals?userId=bob", CONSOLE));
  assert.deepEqual(
    ofBob.map(({ approvalId }: Loose) => approvalId),
    [foreign],
  );
  assert.equal((await service.get("/approvals?userId=bob", as("ada"))).status, 400);
  assert.equal((await service.get("/approvals")).status, 401);
  assert.deepEqual(await errorOf(answer(service, foreign, { approved: true }, as("ada"))), {
    status: 404,
    error: `approval "${foreign}" does not exist`,
  });
  const { userId, decidedBy } = await dataOf(answer(service, foreign, { approved: false }, CONSOLE));
  assert.deepEqual([userId, decidedBy], ["bob", "console"]);
  assert.deepEqual((await dataOf(answer(service, of, { approved: true }, as("ada")))).decidedBy, "ada");
});

test("POST /approvals/:approvalId: what the console alone approves its user sees, and cannot answer", async (t) => {
  const service = await serveApprovals(t, { auth: AUTH, pay: { approvers: "console" } });
  const id = await ask(service, 5, as("ada"));
  const [{ approvers }] = await dataOf(service.get("/approvals", as("ada")));
  assert.equal(approvers, "console");
  const refused = await errorOf(answer(service, id, { approved: true }, as("ada")));
  assert.deepEqual(refused, { status: 403, error: 'tool "pay" is approved by the console alone' });
  await dataOf(answer(service, id, { approved: true }, CONSOLE));
  assert.equal((await dataOf(pay(service, 5, withId(id, as("ada"))))).result.paid, 5);
});

test("GET /approvals: status, limit, offset and order choose, oldest first, and total says how many there are", async (t) => {
  const service = await serveApprovals(t);
  const ids: string[] = [];
  for (let amount = 1; amount <= 5; amount++) {
    ids.unshift(await ask(service, amount));
    // The order of questions of one millisecond is not defined.
    const asked = Date.now();
    await until(() => Date.now() > asked, "the next millisecond");
  }
  const list = async (query: string) =>
    (await dataOf(service.get(`/approvals?${query}`))).map(({ approvalId }: { approvalId: string }) => approvalId);
  assert.deepEqual(await list("limit=2"), ids.slice(3).reverse());
  assert.deepEqual(await list("limit=2&order=desc"), ids.slice(0, 2));
  assert.deepEqual(await list("limit=2&offset=3&order=desc"), ids.slice(3));
  for (const query of ["limit=2", "limit=2&offset=4", "limit=2&offset=40", "order=desc", "limit=5"]) {
    const { success, total } = (await (await service.get(`/approvals?${query}`)).json()) as Loose;
    assert.deepEqual([success, total], [true, 5], query);
  }
  await dataOf(answer(service, ids[1]!, { approved: false }));
  assert.deepEqual(await list("status=denied"), [ids[1]]);
  assert.deepEqual(
    await list("order=desc"),
    ids.filter((id) => id !== ids[1]),
  );
  assert.deepEqual(await list("agentId=assistant"), []);
  for (const query of ["status=what", "order=up", "userId="])
    assert.equal((await service.get(`/approvals?${query}`)).status, 400, query);
});

test("POST /approvals/:approvalId: no answer in time is a no, and nobody can answer after that", async (t) => {
  const service = await serveApprovals(t, { pay: { expires: "1ms" } });
  const id = await ask(service);
  await until(
    async () => (await dataOf(service.get("/approvals?status=expired"))).length === 1,
    "the end of the question",
  );
  assert.deepEqual(await dataOf(service.get("/approvals")), []);
  assert.deepEqual(await errorOf(answer(service, id, { approved: true })), {
    status: 409,
    error: "the approval is already expired",
  });
  assert.deepEqual(await errorOf(pay(service, 5, withId(id))), {
    status: 409,
    error: 'the approval of tool "pay" has expired',
  });
  assert.deepEqual(ran, []);
});

test("POST /tools/:name/execute: an input that a person could not read is 400", async (t) => {
  const parameters = { type: "object" };
  const http = { url: "http://127.0.0.1:9/" };
  const service = await serveApprovals(t, { tools: { call: { http, parameters, approval: true } } });
  const input = { text: "x".repeat(65 * 1024) };
  const { status, error } = await errorOf(service.post("/tools/call/execute", { input }));
  assert.deepEqual([status, error.includes("at most 64 KiB")], [400, true]);
});

test("POST /tools/:name/execute: with an expression only some calls are asked about", async (t) => {
  const service = await serveApprovals(t, { pay: { approval: "{{ input.amount > 100 }}" } });
  assert.equal((await dataOf(pay(service, 100))).result.paid, 100);
  assert.equal((await pay(service, 101)).status, 409);
});

test("POST /tools/:name/execute: a user has at most server.limits.approvals open questions, those of others and of nobody do not count", async (t) => {
  const workflows = { w: { steps: [{ id: "pay", andThen: { tool: "pay", input: { amount: 900 } } }] } };
  const service = await serveApprovals(t, { auth: AUTH, workflows, server: { limits: { approvals: 3 } } });
  const asks = await Promise.all(Array.from({ length: 8 }, (_, amount) => pay(service, amount, as("ada"))));
  const statuses = asks.map(({ status }) => status).sort();
  assert.deepEqual(statuses, [409, 409, 409, 429, 429, 429, 429, 429]);
  const refused = asks.find(({ status }) => status === 429)!;
  assert.deepEqual(await errorOf(refused), {
    status: 429,
    error: "the user has 3 open approvals already: answer some of them first",
  });
  assert.equal(service.service.meters.limits.refused("server.limits.approvals"), 5);
  await ask(service, 5, as("bob"));
  const step = await dataOf(service.post("/workflows/w/execute", { input: {} }, as("ada")));
  assert.equal(step.status, "suspended", "it is bounded by the executions");
  const [{ approvalId }] = await dataOf(service.get("/approvals", as("ada")));
  await dataOf(answer(service, approvalId, { approved: false }, as("ada")));
  await ask(service, 100, as("ada"));
});

test("POST /agents/:id/text: a model is told of the question that a user may not have any more", async (t) => {
  const replies = [{ when: "pay (\\d+)", call: { tool: "pay", input: { amount: "{{ int(match[1]) }}" } } }];
  const service = await serveApprovals(t, {
    auth: AUTH,
    providers: { demo: { use: "scripted", replies } },
    agents: { clerk: { model: "demo/echo", tools: ["pay"], memory: false } },
    server: { limits: { approvals: 1 } },
  });
  const say = (input: string) => dataOf(service.post("/agents/clerk/text", { input }, as("ada")));
  assert.equal((await say("pay 1")).approvals.length, 1);
  const { approvals, text } = await say("pay 2");
  assert.deepEqual([approvals, ran], [undefined, []]);
  assert.match(text, /the user has 1 open approvals already/);
});

test("POST /tools/:name/execute: an expression of an approval that fails is a warning in the log, and asks", async (t) => {
  const service = await serveApprovals(t, { pay: { approval: "{{ context.limit < input.amount }}" } });
  assert.equal((await pay(service, 5)).status, 409);
  const warnings = service.log.filter(({ level }) => level === 40 || level === "warn").map(({ msg }) => String(msg));
  const said = warnings.filter((text) =>
    text.startsWith('approval of tool "pay" cannot be evaluated, so a person is asked: '),
  );
  assert.equal(said.length, 1, warnings.join("\n"));
  assert.equal((await pay(service, 5, {}, { limit: 10 })).status, 200);
});
