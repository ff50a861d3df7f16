/** Questions that nobody can answer any more: they are withdrawn, and whoever answers is told why. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, beforeEach, describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { A2aCaller, now, said } from "../support/a2a.ts";
import { AUTH, approvalManifest, as, CONSOLE, PAYS, pay, ran, serveApprovals } from "../support/approvals.ts";
import { until } from "../support/probe.ts";
import { reload } from "../support/reload.ts";
import { dataOf, errorOf, type Loose } from "../support/served-upstream.ts";
import { parseEvents, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

const MANIFEST = {
  memory: { default: {}, notes: {} },
  providers: {
    demo: {
      use: "scripted",
      replies: [
        ...PAYS,
        { when: "delegate", call: { tool: "delegate_task", input: { agentId: "aide", task: "pay 9" } } },
      ],
    },
  },
  agents: {
    assistant: { model: "demo/echo", memory: false },
    clerk: { model: "demo/echo", tools: ["pay"] },
    plain: { model: "demo/echo", tools: ["pay"], memory: false },
    kept: { model: "demo/echo", tools: ["pay"], durable: true },
    aide: { model: "demo/echo", tools: ["pay"], memory: "notes" },
    boss: { model: "demo/echo", subAgents: ["aide"] },
  },
  workflows: {
    one: { steps: [{ id: "pay", andThen: pay("{{ input.amount }}") }] },
    asks: { steps: [{ id: "ask", andAgent: { agent: "plain", prompt: "pay both" } }] },
    chats: { steps: [{ id: "ask", andAgent: { agent: "clerk", prompt: "pay 5" } }] },
    bosses: { steps: [{ id: "ask", andAgent: { agent: "boss", prompt: "delegate" } }] },
    fails: {
      steps: [
        {
          id: "both",
          andAll: [
            { id: "pay", andThen: pay("{{ input.amount }}") },
            { id: "bad", andThen: { set: "{{ input.nothing.at.all }}" } },
          ],
        },
      ],
    },
  },
};

type Headers = Record<string, string>;
const open = (service: TestService, headers: Headers = {}): Promise<Loose[]> =>
  dataOf(service.get("/approvals", headers));
const withdrawn = (service: TestService, headers: Headers = {}): Promise<Loose[]> =>
  dataOf(service.get("/approvals?status=withdrawn", headers));
/** Waits until the questions are withdrawn, and checks what they and their late answers say. */
async function isWithdrawn(service: TestService, ids: string[], reason: string, headers: Headers = {}) {
  let found: Loose[] = [];
  await until(async () => {
    found = (await withdrawn(service, headers)).filter(({ approvalId }) => ids.includes(approvalId));
    return found.length === ids.length;
  }, `the withdrawal: ${reason}`);
  for (const each of found) {
    assert.deepEqual([each.status, each.reason, typeof each.decidedAt], ["withdrawn", reason, "string"]);
    for (const approved of [true, false])
      assert.deepEqual(await errorOf(service.post(`/approvals/${each.approvalId}`, { approved }, headers)), {
        status: 409,
        error: `the approval is already withdrawn: ${reason}`,
      });
  }
  assert.deepEqual(ran, []);
}
const idsOf = (asked: Loose[]): string[] => asked.map(({ approvalId }) => approvalId);

beforeEach(() => void ran.splice(0));

describe("a question", () => {
  const over: (() => unknown)[] = [];
  let service: TestService;
  let store = "";
  let count = 0;
  before(async () => {
    const test = { after: (end: () => unknown) => void over.push(end) } as unknown as TestContext;
    store = `sqlite:${join(await temporaryFolder(test), "test.db")}`;
    service = await serveApprovals(test, { ...MANIFEST, store });
  });
  after(async () => {
    for (const end of over.reverse()) await end();
  });
  beforeEach(async () => {
    count += 1;
    for (const { approvalId } of await open(service))
      await dataOf(service.post(`/approvals/${approvalId}`, { approved: false }));
  });
  const stateOf = (agent: string, runId: string): Promise<Loose> =>
    dataOf(service.get(`/agents/${agent}/runs/${runId}`));
  const memory = () => ({ userId: "u", conversationId: `c${count}` });
  const waiting = async (options: object = {}) => {
    const reply = await service.post("/agents/kept/text", { input: "pay 5", options });
    const runId = reply.headers.get("x-run-id")!;
    assert.equal((await stateOf("kept", runId)).status, "waiting", await reply.text());
    return runId;
  };

  for (const [workflow, questions] of [
    ["one", 1],
    ["asks", 2],
  ] as const)
    test(`POST /workflows/:id/executions/:executionId/cancel of "${workflow}": it is withdrawn`, async () => {
      const { executionId } = await dataOf(service.post(`/workflows/${workflow}/execute`, { input: { amount: 5 } }));
      const ids = idsOf(await open(service));
      assert.equal(ids.length, questions);
      await dataOf(service.post(`/workflows/${workflow}/executions/${executionId}/cancel`, {}));
      await isWithdrawn(service, ids, "cancelled");
    });

  test("POST /workflows/:id/execute: of an execution that fails while it waits, it is withdrawn", async () => {
    const failed = await service.post("/workflows/fails/execute", { input: { amount: 5 } });
    assert.equal(failed.status, 500, await failed.text());
    const all = await withdrawn(service);
    await isWithdrawn(service, idsOf(all.filter(({ workflowId }) => workflowId === "fails")), "ended");
    assert.deepEqual(await open(service), []);
  });

  test("POST /agents/:id/runs/:runId/cancel: that of a run that waits is withdrawn", async () => {
    const runId = await waiting();
    const ids = idsOf(await open(service));
    await dataOf(service.post(`/agents/kept/runs/${runId}/cancel`, {}));
    await isWithdrawn(service, ids, "cancelled");
  });

  test("POST /a2a/:id: that of a task that is canceled is withdrawn", async () => {
    const peer = new A2aCaller(service);
    const { id } = await peer.send("plain", said("pay both"));
    const ids = idsOf(await open(service));
    assert.equal(ids.length, 2);
    await peer.result("plain", "CancelTask", { id });
    await isWithdrawn(service, ids, "cancelled");
  });

  test("DELETE /api/memory/conversations/:conversationId: those of the conversation are withdrawn, and its run that waits is cancelled", async () => {
    const runId = await waiting({ memory: memory() });
    const { conversationId } = memory();
    await (
      await service.post("/agents/clerk/chat", { input: "pay 6", options: { memory: { ...memory(), userId: "v" } } })
    ).text();
    const asked = await open(service);
    const mine = asked.filter(({ userId }) => userId === "u");
    const path = `/api/memory/conversations/${conversationId}?userId=u&agentId=kept`;
    await dataOf(fetch(service.url + path, { method: "DELETE" }));
    await isWithdrawn(service, idsOf(mine), "conversation_deleted");
    await until(async () => (await stateOf("kept", runId)).status === "cancelled", "the end of the run");
    assert.deepEqual(
      (await open(service)).map(({ userId }) => userId),
      asked.length === mine.length ? [] : ["v"],
      "that of another user of the same id stays",
    );
  });

  /** Works in a conversation and waits. Gives what becomes of it. */
  const WAITERS: Readonly<Record<string, () => Promise<() => Promise<string>>>> = {
    async "a run whose sub-agent has another memory"() {
      const { runId } = await dataOf(
        service.post("/agents/boss/text", { input: "delegate", options: { memory: memory() } }),
      );
      return async () => (await stateOf("boss", runId)).status;
    },
    ...Object.fromEntries(
      Object.entries({ chats: "an andAgent step", bosses: "an andAgent step whose sub-agent asks" }).map(
        ([id, what]) => [
          what,
          async () => {
            const execution = service.post(`/workflows/${id}/execute`, { input: {}, options: memory() });
            const path = `/workflows/${id}/executions/${(await dataOf(execution)).executionId}/state`;
            return async () => (await dataOf(service.get(path))).error?.message;
          },
        ],
      ),
    ),
  };
  const conversation = (agent = "clerk") => {
    const { conversationId, userId } = memory();
    const path = `/api/memory/conversations/${conversationId}`;
    const query = `?userId=${userId}&agentId=${agent}`;
    return {
      remove: () => dataOf(fetch(service.url + path + query, { method: "DELETE" })),
      read: () => service.get(`${path}/messages${query}`),
    };
  };

  for (const [what, wait] of Object.entries(WAITERS))
    test(`DELETE /api/memory/conversations/:conversationId: that of ${what} is withdrawn, and nothing comes back`, async () => {
      const outcome = await wait();
      const ids = idsOf(await open(service));
      assert.equal(ids.length, 1);
      await conversation().remove();
      await isWithdrawn(service, ids, "conversation_deleted");
      const end = what.startsWith("a run") ? "cancelled" : "the conversation has been deleted";
      await until(async () => (await outcome()) === end, "the end");
      assert.equal((await conversation().read()).status, 404);
    });

  test("DELETE /api/memory/conversations/:conversationId: those of a sub-agent stay where the conversation of that id in its own memory is deleted", async () => {
    await dataOf(service.post("/agents/boss/text", { input: "delegate", options: { memory: memory() } }));
    await dataOf(service.post("/workflows/bosses/execute", { input: {}, options: memory() }));
    await dataOf(service.post("/agents/aide/text", { input: "hello", options: { memory: memory() } }));
    await conversation("aide").remove();
    assert.equal((await open(service)).length, 2);
  });

  test("DELETE /api/memory/conversations/:conversationId: a run that is answered and has not gone on yet does not begin the conversation again", async () => {
    const again = (manifest: object) => reload(service, approvalManifest({ ...manifest, store }));
    const runId = await waiting({ memory: memory() });
    const { kept: _, ...agents } = MANIFEST.agents;
    assert.equal((await again({ ...MANIFEST, agents })).status, 200);
    for (const id of idsOf(await open(service))) await dataOf(service.post(`/approvals/${id}`, { approved: false }));
    await conversation().remove();
    assert.equal((await again(MANIFEST)).status, 200);
    await until(async () => (await stateOf("kept", runId)).status !== "waiting", "that it goes on");
    await until(async () => (await stateOf("kept", runId)).status === "error", "the end");
    assert.equal((await stateOf("kept", runId)).error, "the conversation has been deleted");
    assert.equal((await conversation().read()).status, 404);
  });

  for (const role of ["user", "assistant"])
    test(`POST /api/memory/messages/delete: the message of the ${role} is not stored again by a run that waited meanwhile`, async () => {
      const runId = await waiting({ memory: memory() });
      const read = async (): Promise<Loose[]> => (await dataOf(conversation().read())).messages;
      const [kept, deleted] = [await read(), await read()].map((all, index) =>
        all.filter((message) => (message.role === role) === (index === 1)).map(({ id }) => id),
      );
      await dataOf(service.post("/api/memory/messages/delete", { ...memory(), agentId: "kept", messageIds: deleted }));
      for (const id of idsOf(await open(service))) await dataOf(service.post(`/approvals/${id}`, { approved: true }));
      await until(async () => (await stateOf("kept", runId)).status === "completed", "the end");
      assert.deepEqual([(await read()).map(({ id }) => id), ran], [kept, [5]]);
    });

  for (const agent of ["clerk", "kept"])
    test(`POST /agents/:id/text of "${agent}": a further message of its user withdraws it`, async () => {
      const say = (input: unknown) => service.post(`/agents/${agent}/text`, { input, options: { memory: memory() } });
      const first = await say("pay 5");
      const ids = idsOf(await open(service));
      assert.equal(ids.length, 1);
      await dataOf(say("hello"));
      await isWithdrawn(service, ids, "superseded");
      const runId = first.headers.get("x-run-id");
      await until(async () => (await stateOf(agent, runId!)).status === "cancelled", "the end");
    });

  test("POST /agents/:id/chat: a further message after a call that waits withdraws it, also without a memory", async () => {
    const chat = async (messages: object[]) =>
      parseEvents(await (await service.post("/agents/plain/chat", { messages })).text()).flatMap(({ data }) =>
        data === "[DONE]" ? [] : [JSON.parse(data)],
      );
    const question = { role: "user", parts: [{ type: "text", text: "pay 5" }] };
    const asked = (await chat([question])).find(({ type }) => type === "tool-approval-request");
    const part = (more: object) => ({ type: "tool-pay", toolCallId: asked.toolCallId, input: { amount: 5 }, ...more });
    const answer = (more: object) => ({ id: "a1", role: "assistant", parts: [{ type: "step-start" }, part(more)] });
    const requested = answer({ state: "approval-requested", approval: { id: asked.approvalId } });
    await chat([question, requested, { role: "user", parts: [{ type: "text", text: "hello" }] }]);
    await isWithdrawn(service, [asked.approvalId], "superseded");
    const approval = { id: asked.approvalId, approved: true };
    const chunks = await chat([question, answer({ state: "approval-responded", approval })]);
    const types = chunks.map(({ type }) => type);
    assert.ok(types.includes("tool-output-denied"), types.join());
    const said = chunks.find(({ type }) => type === "data-tool-output-denied");
    assert.deepEqual([said.data.toolCallId, said.data.reason], [asked.toolCallId, "superseded"]);
    assert.deepEqual(ran, []);
  });

  test("POST /agents/:id/ag-ui: a further message of its user withdraws it", async () => {
    const run = async (messages: object[]) =>
      (await service.post("/agents/clerk/ag-ui", { threadId: `t${count}`, runId: `r${count}`, messages })).text();
    await run([{ id: "u1", role: "user", content: "pay 5" }]);
    const ids = idsOf(await open(service));
    await run([{ id: "u2", role: "user", content: "hello" }]);
    await isWithdrawn(service, ids, "superseded");
  });

  test("POST /agents/:id/chat: what the same user says elsewhere, or another one in the conversation of the same id, leaves it open", async () => {
    const say = async (input: string, of: object) =>
      (await service.post("/agents/clerk/chat", { input, options: { memory: { ...memory(), ...of } } })).text();
    await say("pay 5", {});
    await say("hello", { conversationId: `other${count}` });
    await say("hello", { userId: "v", conversationId: `third${count}` });
    assert.equal((await open(service)).length, 1);
  });

  for (const gone of ["tool", "agent"])
    test(`POST /approvals/:approvalId: one whose ${gone} a reload has removed is withdrawn when the yes comes`, async () => {
      const again = (manifest: object) => reload(service, approvalManifest({ ...manifest, store }));
      const say = async () => (await service.post("/agents/plain/chat", { input: "pay 5" })).text();
      await say();
      const [{ approvalId }] = await open(service);
      const { plain: _, ...agents } = MANIFEST.agents;
      const bare = Object.fromEntries(
        Object.entries(MANIFEST.agents).map(([id, agent]) => [id, { ...agent, tools: [] }]),
      );
      const next =
        gone === "agent"
          ? { ...MANIFEST, agents, workflows: {} }
          : { ...MANIFEST, agents: bare, workflows: {}, tools: { other: { use: "pay" } } };
      assert.equal((await again(next)).status, 200);
      const late = await errorOf(service.post(`/approvals/${approvalId}`, { approved: true }));
      assert.deepEqual(late, { status: 409, error: "the approval is already withdrawn: tool_removed" });
      await isWithdrawn(service, [approvalId], "tool_removed");
      assert.equal((await again(MANIFEST)).status, 200);
    });

  test("POST /approvals/:approvalId: one of an execution that ended while nobody could withdraw it is withdrawn when the answer comes", async () => {
    const { executionId } = await dataOf(service.post("/workflows/one/execute", { input: { amount: 5 } }));
    const [{ approvalId }] = await open(service);
    // As an older release has stored it: nothing leads from the execution to the question.
    const { store } = service.service;
    const rows = await store.scan({ prefix: "aw/", limit: 100 });
    await store.commit({ delete: rows.map(({ key }) => key) });
    await dataOf(service.post(`/workflows/one/executions/${executionId}/cancel`, {}));
    assert.equal((await open(service)).length, 1);
    const late = await errorOf(service.post(`/approvals/${approvalId}`, { approved: true }));
    assert.deepEqual(late, { status: 409, error: "the approval is already withdrawn: ended" });
    await isWithdrawn(service, [approvalId], "ended");
  });
});

test("POST /agents/:id/text: a question of the console's stays when its user says something else", async (t) => {
  const service = await serveApprovals(t, { ...MANIFEST, auth: AUTH, pay: { approvers: "console" } });
  const options = { memory: { conversationId: "c" } };
  const say = (input: string) => dataOf(service.post("/agents/clerk/text", { input, options }, as("ada")));
  await say("pay 5");
  await say("hello");
  assert.equal((await open(service, CONSOLE)).length, 1);
});

describe("a question that is stored while what asks it is stopped", () => {
  /** Holds the commit of the next question until it is released, as a slow disk does. */
  function holdQuestion({ service: { store } }: TestService) {
    const { commit } = store;
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let isHeld = false;
    (store as { commit: typeof commit }).commit = async (changes) => {
      if (changes.put?.some(([key]) => key.startsWith("ap/"))) {
        (store as { commit: typeof commit }).commit = commit;
        isHeld = true;
        await held;
      }
      return commit(changes);
    };
    return { release, asked: () => until(() => isHeld, "a question") };
  }

  const begun = async (reply: Promise<Response>): Promise<Loose> => ((await (await reply).json()) as Loose).data;
  const WAYS: Record<string, (service: TestService) => Promise<() => Promise<unknown>>> = {
    "POST /agents/:id/runs/:runId/cancel": async (service) => {
      const { runId } = await begun(
        service.post("/agents/kept/text", { input: "pay 5", options: { background: true } }),
      );
      return () => dataOf(service.post(`/agents/kept/runs/${runId}/cancel`, {}));
    },
    "POST /agents/:id/chat/:conversationId/cancel": async (service) => {
      const memory = { userId: "u", conversationId: "stopped" };
      const messages = [{ id: "m", role: "user", parts: [{ type: "text", text: "pay 5" }] }];
      void service
        .post("/agents/clerk/chat", { input: messages, options: { memory, resumableStream: true } })
        .then((reply) => reply.text());
      return () => dataOf(service.post("/agents/clerk/chat/stopped/cancel", { userId: "u" }));
    },
    "POST /a2a/:id CancelTask": async (service) => {
      const peer = new A2aCaller(service);
      const { id } = await peer.send("plain", { ...said("pay 5"), ...now });
      return () => peer.result("plain", "CancelTask", { id });
    },
    "POST /workflows/:id/executions/:executionId/cancel": async (service) => {
      const { executionId } = await begun(
        service.post("/workflows/one/execute", { input: { amount: 5 }, options: { background: true } }),
      );
      return () => dataOf(service.post(`/workflows/one/executions/${executionId}/cancel`, {}));
    },
  };

  for (const [way, begin] of Object.entries(WAYS))
    test(`${way}: it is withdrawn, and not listed as open`, async (t) => {
      const store = `sqlite:${join(await temporaryFolder(t), "test.db")}`;
      const service = await serveApprovals(t, { ...MANIFEST, store });
      const question = holdQuestion(service);
      const stop = await begin(service);
      await question.asked();
      const stopping = stop();
      // Cancelling may wait for the step that is being stopped, but for no longer than that.
      await Promise.race([stopping, sleep(300)]);
      question.release();
      await stopping;
      await until(async () => (await withdrawn(service)).length === 1, "the withdrawal");
      assert.deepEqual(await open(service), []);
      assert.deepEqual(ran, []);
    });
});
