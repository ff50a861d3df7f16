/**
 * The walk over every way in: what each can do (run a tool, talk in a conversation, start an execution) times isolation, limits and
 * redaction. That a tool waits for a person on each of them is in contract/approvals-ways.test.ts.
 */
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { ROUTES } from "../../core/api/routes/index.ts";
import { SOCKETS } from "../../core/api/sockets/index.ts";
import { AUTH, as, ran } from "../support/approvals.ts";
import type { OpenAIUpstream } from "../support/openai-upstream.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";
import { WAYS, waysThat } from "../support/ways-in.ts";
import { notes, pays, serveWays, toldSince } from "../support/ways-service.ts";

/** Rows by which nothing is asked of an agent, no tool runs and nothing begins; what they show of others is in isolation.test.ts. */
const NO_WAYS = new Set([
  ...["DELETE /mcp/:serverId/mcp", "GET /mcp/:serverId/mcp", "GET /agents/:id/ag-ui"],
  // They answer questions, or go on with executions: both have the owner of what they are about.
  ...["GET /approvals", "POST /approvals/:approvalId"],
  ...["suspend", "resume", "replay", "cancel"].map((verb) => `POST /workflows/:id/executions/:executionId/${verb}`),
  "GET /workflows/:id/executions/:executionId/stream",
  // They show what is there, and stop or remove it.
  ...["GET /v1/models", "GET /v1/models/:id", "POST /v1/responses/:id/cancel", "GET /v1/responses/:id/input_items"],
  // It makes vectors of what it is given.
  "POST /v1/embeddings",
  // It counts what it is given, or a response of the caller's.
  "POST /v1/responses/input_tokens",
  // It sums up what it is given, or a response of the caller's.
  "POST /v1/responses/compact",
  ...["GET /v1/responses/:id", "DELETE /v1/responses/:id"],
  ...["GET /agents/:id/runs/:runId", "GET /agents/:id/runs/:runId/stream", "POST /agents/:id/runs/:runId/cancel"],
  ...["GET /agents/:id/chat/:conversationId/stream", "POST /agents/:id/chat/:conversationId/cancel"],
]);
const isMemory = (row: string) => row.includes(" /api/memory/");

const ada = { headers: as("ada") };
const bob = { headers: as("bob") };
const FILLER = "x".repeat(100 * 1024);
const SECRET = "sk-live-0123456789abcdef0123";

test("every row that takes calls of users is one of the ways in that tests walk through", () => {
  const rows = ROUTES.filter(({ group }) => group === "execution").map(({ method, path }) => `${method} ${path}`);
  const walked = new Set(Object.values(WAYS).flatMap(({ rows }) => rows));
  assert.deepEqual(
    rows.filter((row) => !walked.has(row) && !NO_WAYS.has(row) && !isMemory(row)),
    [],
    "a new way in has its lines in test/support/ways-in.ts",
  );
  const own = ["POST /shop", "WS /shop-socket", ...SOCKETS.map(({ path }) => `WS ${path}`)];
  assert.deepEqual(
    [...walked].filter((row) => !rows.includes(row) && !own.includes(row)),
    [],
  );
  for (const { path, group } of SOCKETS)
    assert.ok(
      group === "execution" ? walked.has(`WS ${path}`) : /^\/ws/.test(path),
      `${path}: other sockets of the service say what happens, and take no calls`,
    );
});

describe("every way in, with isolation", () => {
  let service: TestService;
  let upstream: OpenAIUpstream;
  let count = 100;
  const over: (() => unknown)[] = [];
  before(async () => {
    const test = { after: (end: () => Promise<void>) => void over.push(end) };
    ({ service, upstream } = await serveWays(test, { auth: { ...AUTH, isolation: "user", consoleRoutes: [] } }));
  });
  after(async () => {
    for (const end of over) await end();
  });
  beforeEach(() => {
    ran.splice(0);
    count += 1;
  });

  /** All that traces and the log say. */
  async function recorded(): Promise<string> {
    const { traces } = await dataOf(service.get("/observability/traces?limit=5", ada.headers));
    const whole = traces.map(({ traceId }: Loose) =>
      dataOf(service.get(`/observability/traces/${traceId}`, ada.headers)),
    );
    return JSON.stringify([await Promise.all(whole), service.log]);
  }

  /** @param word something that stands beside the secret */
  async function assertRedacted(word: string): Promise<void> {
    let said = "";
    await until(async () => {
      said = await recorded();
      return said.includes(word);
    }, "the trace");
    assert.ok(!said.includes(SECRET), "neither a trace nor the log has it");
  }

  for (const [name, { tool, after: how, goOn, traced = true }] of waysThat("tool")) {
    if (how !== "never")
      test(`${name}: what one user has approved runs nothing for another one`, async () => {
        await tool(service, pays(count), ada);
        const [mine] = await dataOf(service.get("/approvals", ada.headers));
        assert.equal(mine.input.amount, count);
        await dataOf(service.post(`/approvals/${mine.approvalId}`, { approved: true }, ada.headers));
        if (how === "by itself") await until(() => ran.length === 1, "the step");
        const begun = [...ran];
        await tool(service, pays(count), { headers: { ...bob.headers, "x-approval-id": mine.approvalId } });
        await tool(service, pays(count), bob);
        if (goOn !== undefined) await goOn(service, mine, bob);
        assert.deepEqual(ran, begun);
        for (const { userId } of await dataOf(service.get("/approvals", bob.headers))) assert.equal(userId, "bob");
        if (how === "by itself") return;
        if (goOn !== undefined) await goOn(service, mine, ada);
        else await tool(service, pays(count), { headers: { ...ada.headers, "x-approval-id": mine.approvalId } });
        assert.deepEqual(ran, [count], "it does for the one who was asked");
      });

    test(`${name}: a call that is too large is refused before anything runs`, async () => {
      const { status } = await tool(service, notes("large"), { ...ada, filler: FILLER });
      assert.ok(status === 413 || status === 1009, String(status));
      assert.deepEqual(ran, []);
    });

    test(`${name}: a secret in the input of a tool reaches the tool, and no trace and no log`, async () => {
      const text = `word${count}:${SECRET}`;
      await tool(service, notes(text), ada);
      assert.deepEqual(ran, [text]);
      if (traced) await assertRedacted(`word${count}`);
      else assert.ok(!(await recorded()).includes(SECRET));
    });
  }

  for (const [name, { talk }] of waysThat("talk")) {
    test(`${name}: a conversation of another user of the same id is told to nobody`, async () => {
      const id = `c-${count}`;
      const word = `tea-${count}`;
      const options = { memory: { conversationId: id } };
      await dataOf(service.post("/agents/clerk/text", { input: word, options }, ada.headers));
      const path = `/api/memory/conversations/${id}/messages?agentId=clerk`;
      const before = await dataOf(service.get(path, ada.headers));
      const begin = upstream.requests.length;
      const { text } = await talk(service, id, "hello", bob);
      assert.ok(!`${text} ${toldSince(upstream, begin)}`.includes(word));
      assert.deepEqual(await dataOf(service.get(path, ada.headers)), before);
      const { text: own } = await talk(service, id, "and?", ada);
      assert.ok(`${own} ${toldSince(upstream, begin)}`.includes(word), "it is told to the one whose it is");
    });

    test(`${name}: a message that is too large is refused before a model is asked`, async () => {
      const begin = upstream.requests.length;
      assert.equal((await talk(service, `c-${count}`, "hello", { ...ada, filler: FILLER })).status, 413);
      assert.equal(upstream.requests.length, begin);
    });

    test(`${name}: a secret in a message is in no trace and no log`, async () => {
      const begin = upstream.requests.length;
      await talk(service, `c-${count}`, `word${count}:${SECRET}`, ada);
      // The thread alone asks no model, and leaves no trace.
      if (upstream.requests.length > begin) await assertRedacted(`word${count}`);
      else assert.ok(!(await recorded()).includes(SECRET));
    });
  }

  for (const [name, { start }] of waysThat("start")) {
    test(`${name}: an execution of another user of the same id is not shown and not touched`, async () => {
      const id = `x-${count}`;
      const word = `tea-${count}`;
      const state = (headers: Record<string, string>) => service.get(`/workflows/flow/executions/${id}/state`, headers);
      await start(service, id, { word }, ada);
      const before = await dataOf(state(ada.headers));
      assert.equal(before.input.word, word);
      assert.equal((await state(bob.headers)).status, 404);
      const { text } = await start(service, id, { word: "coffee" }, bob);
      assert.ok(!text.includes(word));
      assert.deepEqual(await dataOf(state(ada.headers)), before);
      assert.equal((await dataOf(state(bob.headers))).input.word, "coffee");
    });

    test(`${name}: an input that is too large is refused, and no execution begins`, async () => {
      const id = `x-${count}`;
      assert.equal((await start(service, id, {}, { ...ada, filler: FILLER })).status, 413);
      assert.equal((await service.get(`/workflows/flow/executions/${id}/state`, ada.headers)).status, 404);
    });

    test(`${name}: a secret in the input is in no trace and no log`, async () => {
      await start(service, `x-${count}`, { note: `word${count}:${SECRET}` }, ada);
      await assertRedacted(`word${count}`);
    });
  }

  test("POST /v1/responses: a stored response of another user cannot be continued, and is told to nobody", async () => {
    const word = `tea-${count}`;
    const ask = async (body: object, { headers }: typeof ada) =>
      service.post("/v1/responses", { model: "clerk", store: true, ...body }, headers);
    const { id } = (await (await ask({ input: word }, ada)).json()) as Loose;
    const begin = upstream.requests.length;
    const refused = await ask({ input: "hello", previous_response_id: id }, bob);
    assert.ok(refused.status >= 400 && refused.status < 500, String(refused.status));
    assert.ok(!`${await refused.text()} ${toldSince(upstream, begin)}`.includes(word));
    assert.equal((await ask({ input: "and?", previous_response_id: id }, ada)).status, 200);
    assert.ok(toldSince(upstream, begin).includes(word), "it is told to the one whose it is");
  });

  test("every way in without a token is 401, and nothing runs", async () => {
    for (const [name, { tool }] of waysThat("tool")) {
      const refused = await tool(service, notes("x"), {}).catch(({ message }: Error) => ({
        status: Number(/refused: (\d+)/.exec(message)?.[1]),
      }));
      assert.equal(refused.status, 401, name);
    }
    for (const [name, { talk }] of waysThat("talk"))
      assert.equal((await talk(service, "c", "hello", {})).status, 401, name);
    for (const [name, { start }] of waysThat("start"))
      assert.equal((await start(service, "x", {}, {})).status, 401, name);
    assert.deepEqual(ran, []);
  });
});
