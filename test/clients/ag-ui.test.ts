/** The official clients of AG-UI, 1.0 and 0.0.57, against `POST /agents/:id/ag-ui` over HTTP. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, beforeEach, describe, type TestContext, test } from "node:test";
import { PAY_PLUGIN, ran } from "../support/approvals.ts";
import { calls, failsAfter, failure, says, stallsAfter } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { temporaryFolder } from "../support/storage.ts";
import { agUiClient, CLIENTS, typesOf } from "./ag-ui-clients.ts";

const PATH = "/agents/assistant/ag-ui";
const PAYS = { id: "c1", name: "pay", input: { amount: 5 } };
const CONFIRM = {
  name: "confirm",
  description: "Asks the user",
  parameters: { type: "object", properties: { question: { type: "string" } }, required: ["question"] },
};

async function serve(
  t: TestContext,
  agent: object = {},
  { tools = {}, ...rest }: Record<string, object | string> = {},
) {
  const all = { pay: { use: "pay", approval: true }, sum: { use: "add" }, ...(tools as object) };
  const served = await serveUpstream(
    t,
    { tools: ["sum"], ...agent },
    { tools: all, memory: { chats: {} }, ...rest },
    { plugins: [pluginFolder(t, PAY_PLUGIN)] },
  );
  const messages = async (thread: string): Promise<Loose[]> =>
    (await dataOf(served.service.get(`/api/memory/conversations/${thread}/messages?agentId=assistant`))).messages;
  return { ...served, messages, url: served.service.url + PATH };
}

const rolesOf = (messages: readonly Loose[]) => messages.map(({ role }) => role);

/** What a client says of events that it does not take as they are. */
const warnings: unknown[][] = [];
const { warn } = console;

beforeEach(() => void ran.splice(0));
before(() => {
  console.warn = (...said) => void warnings.push(said);
});
after(() => {
  console.warn = warn;
  assert.deepEqual(warnings, []);
});

for (const [name, isCurrent] of Object.entries(CLIENTS)) {
  describe(`the client ${name}`, () => {
    test("POST /agents/:id/ag-ui: text and reasoning come as messages, and the usage with the end", async (t) => {
      const { upstream, url } = await serve(t);
      upstream.replies(says("Hello there.", { chunks: 3, reasoning: "They greet." }));
      const { agent, run } = await agUiClient(name, url);
      const { events, finished } = await run("Hi");
      assert.deepEqual(typesOf({ events } as Loose), [
        "RUN_STARTED",
        "STEP_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "RUN_FINISHED",
      ]);
      const [user, reasoning, answer, ...none] = agent.messages;
      assert.deepEqual(none, []);
      assert.deepEqual([user.content, reasoning.role, reasoning.content], ["Hi", "reasoning", "They greet."]);
      assert.deepEqual([answer.role, answer.content], ["assistant", "Hello there."]);
      assert.equal(finished.outcome, "success");
      const [started] = events;
      const last = events.at(-1);
      assert.deepEqual([started.threadId, last.threadId], [agent.threadId, agent.threadId]);
      assert.equal(started.protocolVersion, isCurrent ? "1.0" : undefined);
      assert.deepEqual(
        last.usage?.map(({ model, inputTokens, outputTokens }: Loose) => [model, inputTokens, outputTokens]),
        isCurrent ? [["up/test-model", 10, 5]] : undefined,
      );
    });

    test("POST /agents/:id/ag-ui: calls and results of the agent's own tools are in the thread, and go on", async (t) => {
      const { upstream, url } = await serve(t);
      upstream.replies(calls([{ id: "c1", name: "sum", input: { a: 1, b: 2 } }]), says("Three."), says("Yes."));
      const { agent, run } = await agUiClient(name, url);
      const { events } = await run("1 + 2?");
      assert.deepEqual(rolesOf(agent.messages), ["user", "assistant", "tool", "assistant"]);
      const [, call, result, answer] = agent.messages;
      const { name: tool, arguments: input } = call.toolCalls[0].function;
      assert.deepEqual([tool, JSON.parse(input)], ["sum", { a: 1, b: 2 }]);
      assert.deepEqual([result.toolCallId, JSON.parse(result.content), answer.content], ["c1", { sum: 3 }, "Three."]);
      assert.equal(events.filter(({ type }) => type === "STEP_STARTED").length, 2);

      await run("Sure?");
      assert.deepEqual(rolesOf(upstream.requests[2]!.body.messages), [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
      ]);
      assert.equal(agent.messages.at(-1).content, "Yes.");
    });

    for (const memory of [false, "chats"]) {
      const how = memory === false ? "without" : "with";
      test(`POST /agents/:id/ag-ui ${how} memory: a tool of the client ends the run, and its result goes on`, async (t) => {
        const { upstream, url, messages } = await serve(t, { memory });
        upstream.replies(
          calls([{ id: "c1", name: "confirm", input: { question: "Sure?" } }]),
          says("Done."),
          says("Bye."),
        );
        const { agent, run } = await agUiClient(name, url);
        const tools = [CONFIRM];
        const { finished, events } = await run("Delete it", { tools });
        assert.deepEqual(upstream.requests[0]!.body.tools.map((tool: Loose) => tool.function.name).sort(), [
          "confirm",
          "sum",
        ]);
        assert.equal(finished.outcome, "success");
        assert.deepEqual(events.at(-1).outcome.pendingToolCallIds, isCurrent ? ["c1"] : undefined);
        assert.deepEqual(rolesOf(agent.messages), ["user", "assistant"]);

        agent.addMessage({ id: "t1", role: "tool", toolCallId: "c1", content: '{"ok":true}' });
        await run(null, { tools });
        const told = upstream.requests[1]!.body.messages;
        assert.deepEqual(rolesOf(told), ["system", "user", "assistant", "tool"]);
        assert.deepEqual(JSON.parse(told.at(-1).content), { ok: true });
        assert.equal(agent.messages.at(-1).content, "Done.");

        await run("Thanks", { tools });
        assert.deepEqual(rolesOf(upstream.requests[2]!.body.messages), [
          ...["system", "user", "assistant", "tool", "assistant", "user"],
        ]);
        if (memory === false) return;
        const stored = await messages(agent.threadId);
        assert.deepEqual(rolesOf(stored), ["user", "assistant", "user", "assistant"]);
        const part = stored[1].parts.find(({ type }: Loose) => type === "tool-confirm");
        assert.deepEqual([part.state, part.output], ["output-available", { ok: true }]);
        assert.equal(stored[1].parts.at(-1).text, "Done.");
      });

      test(`POST /agents/:id/ag-ui ${how} memory: a tool that needs approval is an interrupt, and a yes runs it once`, async (t) => {
        const { upstream, url, messages, service } = await serve(t, { memory, tools: ["pay"] });
        upstream.replies(calls([PAYS]), says("Paid."), says("Welcome."));
        const { agent, run } = await agUiClient(name, url);
        const asked = await run("Pay");
        assert.equal(asked.finished.outcome, "interrupt");
        const [interrupt, ...none] = asked.finished.interrupts;
        assert.deepEqual([none, interrupt.reason, interrupt.toolCallId], [[], "tool_call", "c1"]);
        const [open] = await dataOf(service.get("/approvals"));
        assert.deepEqual([interrupt.id, interrupt.expiresAt], [open.approvalId, open.expiresAt]);
        assert.equal(open.conversationId, agent.threadId);
        assert.deepEqual(ran, []);
        await assert.rejects(run("and?"), /interrupt/);
        agent.setMessages(agent.messages.slice(0, -1));

        const resume = [{ interruptId: interrupt.id, status: "resolved", payload: { approved: true } }];
        const { events, finished } = await run(null, { resume });
        assert.deepEqual(ran, [5]);
        assert.equal(finished.outcome, "success");
        assert.deepEqual(
          events.map(({ type }) => type).filter((type) => type.startsWith("TOOL_CALL")),
          ["TOOL_CALL_RESULT"],
        );
        assert.deepEqual(rolesOf(agent.messages), ["user", "assistant", "tool", "assistant"]);
        assert.equal(JSON.parse(agent.messages[2].content).paid, 5);
        await run("Thanks");
        assert.deepEqual(ran, [5]);
        if (memory === false) return;
        const stored = await messages(agent.threadId);
        assert.deepEqual(rolesOf(stored), ["user", "assistant", "user", "assistant"]);
        const part = stored[1].parts.find(({ type }: Loose) => type === "tool-pay");
        assert.deepEqual([part.state, part.output.paid], ["output-available", 5]);
      });
    }

    test("POST /agents/:id/ag-ui: a no, an edited input, and an interrupt that is given up", async (t) => {
      const { upstream, url } = await serve(t, { tools: ["pay"] });
      const answers = [
        [{ status: "resolved", payload: { approved: false, reason: "too much" } }, [], /too much/],
        [{ status: "resolved", payload: { approved: true, editedArgs: { amount: 2 } } }, [2], /"paid":2/],
        [{ status: "cancelled" }, [], /refused/],
      ] as const;
      for (const [answer, paid, told] of answers) {
        ran.splice(0);
        upstream.replies(calls([PAYS]), says("Well."));
        const { agent, run } = await agUiClient(name, url);
        const [{ id: interruptId }] = (await run("Pay")).finished.interrupts;
        await run(null, { resume: [{ interruptId, ...answer }] });
        assert.deepEqual(ran, paid);
        assert.match(agent.messages[2].content, told);
        assert.match(upstream.requests.at(-1)!.body.messages.at(-1).content, told);
      }
    });

    test("POST /agents/:id/ag-ui: a request again with its Idempotency-Key follows the run of the first, and the model is asked once", async (t) => {
      const { upstream, url } = await serve(t, { memory: "chats", tools: ["pay"] });
      upstream.replies(calls([PAYS]), says("Well."));
      const thread = { threadId: "again", headers: { "idempotency-key": "k-1" } };
      const [one, two] = [await agUiClient(name, url, thread), await agUiClient(name, url, thread)];
      for (const { agent } of [one, two]) agent.setMessages([{ id: "u1", role: "user", content: "Pay" }]);
      const first = await one.run(null, { runId: "r-1" });
      const second = await two.run(null, { runId: "r-1" });
      assert.deepEqual(second.events, first.events);
      assert.equal(second.finished.outcome, "interrupt");
      assert.deepEqual(two.agent.messages, one.agent.messages);
      assert.equal(upstream.requests.length, 1);
      const resume = [
        { interruptId: second.finished.interrupts[0].id, status: "resolved", payload: { approved: true } },
      ];
      two.agent.headers = { "idempotency-key": "k-2" };
      await two.run(null, { resume });
      assert.deepEqual([ran, two.agent.messages.at(-1).content], [[5], "Well."]);
    });

    test("POST /agents/:id/ag-ui: the run of a durable agent goes on when its client leaves, and its answer is in the thread", async (t) => {
      const store = `sqlite:${join(await temporaryFolder(t), "runs.db")}`;
      const { upstream, url, service } = await serve(t, { memory: "chats", durable: true }, { store });
      upstream.replies(says("An answer in some pieces.", { chunks: 10, delay: 30 }));
      const { agent } = await agUiClient(name, url);
      agent.addMessage({ id: "u1", role: "user", content: "Hi" });
      await agent
        .runAgent({ tools: [CONFIRM] }, { onTextMessageContentEvent: () => void agent.abortRun() })
        .catch(() => {});
      const other = await agUiClient(name, url, { threadId: agent.threadId });
      while (other.agent.messages.at(-1)?.role !== "assistant") {
        other.agent.setMessages([]);
        await other.run(null);
      }
      assert.equal(other.agent.messages.at(-1).content, "An answer in some pieces.");
      // The answer is stored before the end of the run is.
      const list = (): Promise<Loose[]> => dataOf(service.get("/agents/assistant/runs"));
      while ((await list()).some(({ status }) => status === "running"));
      const runs = await list();
      assert.deepEqual(
        runs.map(({ status, conversationId }: Loose) => [status, conversationId]),
        [["completed", agent.threadId]],
      );
      assert.equal(upstream.requests.length, 1);
    });

    test("POST /agents/:id/ag-ui: the run of a durable agent whose process ended goes on after the next start, with the tools of its client", async (t) => {
      const store = `sqlite:${join(await temporaryFolder(t), "runs.db")}`;
      const first = await serve(t, { memory: "chats", durable: true }, { store });
      first.upstream.replies(stallsAfter("half"));
      const messages = [{ id: "u1", role: "user", content: "Hi" }];
      const left = { threadId: "left", runId: "r1", messages, tools: [CONFIRM] };
      const running = first.service.post(PATH, left).then((reply) => reply.text());
      running.catch(() => {});
      await first.upstream.request(0);
      while ((await dataOf(first.service.get("/agents/assistant/runs"))).length === 0);
      await first.service.kill();

      const { upstream, url } = await serve(t, { memory: "chats", durable: true }, { store });
      const { agent, run } = await agUiClient(name, url, { threadId: left.threadId });
      // The run is taken up at the start: the upstream says again what it was told.
      const { body } = await upstream.request(0);
      assert.ok(body.tools.some((tool: Loose) => tool.function.name === "confirm"));
      while (agent.messages.at(-1)?.role !== "assistant") {
        agent.setMessages([]);
        await run(null);
      }
      assert.equal(agent.messages.at(-1).content, "Hi");
    });

    test("POST /agents/:id/ag-ui: what the tool of a durable run has made of the client's state is not undone when its process ends and the run goes on", async (t) => {
      const store = `sqlite:${join(await temporaryFolder(t), "runs.db")}`;
      const memory = { notes: { workingMemory: { format: "json" } } };
      const first = await serve(t, { memory: "notes", durable: true }, { store, memory });
      const update = { name: "update_working_memory", input: { content: { city: "Rome" }, mode: "append" } };
      first.upstream.replies(calls([update]), stallsAfter("half"));
      const messages = [{ id: "u1", role: "user", content: "Hi" }];
      const left = { threadId: "state", runId: "r1", messages, tools: [], state: { name: "Ada" } };
      first.service.post(PATH, left).catch(() => {});
      await first.upstream.request(1);
      await first.service.kill();

      const { upstream, url } = await serve(t, { memory: "notes", durable: true }, { store, memory });
      const { agent, run } = await agUiClient(name, url, { threadId: left.threadId });
      await upstream.request(0);
      while (agent.messages.at(-1)?.role !== "assistant") {
        agent.setMessages([]);
        await run(null);
      }
      assert.deepEqual(agent.state, { name: "Ada", city: "Rome" });
    });

    test("POST /agents/:id/ag-ui: the state is the JSON working memory of the conversation, both ways", async (t) => {
      const memory = { notes: { workingMemory: { format: "json" } } };
      const { upstream, url } = await serve(t, { memory: "notes" }, { memory });
      const update = { name: "update_working_memory", input: { content: { city: "Rome" }, mode: "append" } };
      upstream.replies(says("Hi."), calls([update]), says("Noted."));
      const { agent, run } = await agUiClient(name, url);
      agent.setState({ name: "Ada" });
      await run("Hi");
      assert.match(JSON.stringify(upstream.requests[0]!.body.messages[0]), /Ada/);
      assert.deepEqual(agent.state, { name: "Ada" });
      await run("I live in Rome");
      assert.deepEqual(agent.state, { name: "Ada", city: "Rome" });

      const other = await agUiClient(name, url, { threadId: agent.threadId });
      const { events } = await other.run(null);
      assert.deepEqual(
        events.map(({ type }) => type),
        ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"],
      );
      assert.deepEqual(other.agent.state, { name: "Ada", city: "Rome" });
      assert.deepEqual(rolesOf(other.agent.messages), ["user", "assistant", "user", "assistant", "tool", "assistant"]);
      assert.equal(upstream.requests.length, 3);
    });

    test("POST /agents/:id/ag-ui: a client that comes with nothing gets the thread and its open interrupt, and goes on", async (t) => {
      const { upstream, url } = await serve(t, { memory: "chats", tools: ["pay"] });
      upstream.replies(calls([PAYS]), says("Paid."));
      const first = await agUiClient(name, url);
      const [{ id }] = (await first.run("Pay")).finished.interrupts;
      const { agent, run } = await agUiClient(name, url, { threadId: first.agent.threadId });
      const { finished } = await run(null);
      assert.deepEqual(
        finished.interrupts.map((each: Loose) => each.id),
        [id],
      );
      await run(null, { resume: [{ interruptId: id, status: "resolved", payload: { approved: true } }] });
      assert.deepEqual([ran, agent.messages.at(-1).content], [[5], "Paid."]);
    });

    test("POST /agents/:id/ag-ui: context and state are told to the model, forwardedProps are the context of the run", async (t) => {
      const { upstream, url } = await serve(t, { instructions: "You help {{ context.tenant }}." });
      const { agent, run } = await agUiClient(name, url);
      agent.setState({ page: 7 });
      const context = [{ description: "The open document", value: "Chapter 3" }];
      await run("Hi", { context, forwardedProps: { tenant: "Acme" } });
      const system = upstream.requests[0]!.body.messages.filter(({ role }: Loose) => role === "system");
      const told = JSON.stringify(system);
      for (const text of ["You help Acme.", "The open document", "Chapter 3", "page"]) assert.ok(told.includes(text));
    });

    test("POST /agents/:id/ag-ui: an image of the user reaches the model, and what no model can be shown is left out", async (t) => {
      const { upstream, url } = await serve(t);
      const { agent, run } = await agUiClient(name, url);
      const image = { type: "image", source: { type: "data", value: "iVBORw0KGgo=", mimeType: "image/png" } };
      agent.addMessage({ id: "i1", role: "user", content: [{ type: "text", text: "What is it?" }, image] });
      await run(null);
      const [text, shown] = upstream.requests[0]!.body.messages.at(-1).content;
      assert.deepEqual([text.text, shown.image_url.url], ["What is it?", "data:image/png;base64,iVBORw0KGgo="]);
    });

    test("POST /agents/:id/ag-ui: a sub-agent has its own part of the stream, where the client knows of that", async (t) => {
      const { upstream, url } = await serve(
        t,
        { subAgents: ["clerk"] },
        { agents: { clerk: { model: "up/test-model", memory: false, tools: ["sum"] } } },
      );
      const task = { id: "d1", name: "delegate_task", input: { agentId: "clerk", task: "Add" } };
      const sum = { id: "c1", name: "sum", input: { a: 1, b: 2 } };
      upstream.replies(calls([task]), calls([sum]), says("It is three."), says("Three."), says("Yes."));
      const { agent, run } = await agUiClient(name, url);
      const { events } = await run("Ask the clerk");
      const own = events.filter(({ type }) => type.startsWith("SUBAGENT"));
      assert.deepEqual(
        own.map(({ type, subagentRunId }) => [type, subagentRunId]),
        isCurrent
          ? [
              ["SUBAGENT_STARTED", "d1"],
              ["SUBAGENT_FINISHED", "d1"],
            ]
          : [],
      );
      assert.equal(agent.messages.at(-1).content, "Three.");
      assert.equal(JSON.stringify(events).includes("It is three."), true);
      await run("Sure?");
      assert.deepEqual(rolesOf(upstream.requests.at(-1)!.body.messages), [
        ...["system", "user", "assistant", "tool", "assistant", "user"],
      ]);
    });

    test("POST /agents/:id/ag-ui: a model that fails before the stream is an HTTP error, after it RUN_ERROR", async (t) => {
      const { upstream, url } = await serve(t);
      upstream.replies(failure(500));
      const { run } = await agUiClient(name, url);
      await assert.rejects(run("Hi"), /model provider failed/);
      upstream.replies(failsAfter("Hel"));
      const { run: again } = await agUiClient(name, url);
      const { failed, events } = await again("Hi");
      assert.match(failed.message, /model provider failed/);
      assert.equal(events.at(-1).type, "RUN_ERROR");
    });

    test("POST /agents/:id/ag-ui: a client that aborts its run stops the model", async (t) => {
      const { upstream, url } = await serve(t);
      upstream.replies(says("a".repeat(500), { chunks: 500, delay: 20 }));
      const { agent, run } = await agUiClient(name, url);
      const running = run("Hi").catch((error: Error) => error);
      const request = await upstream.request(0);
      agent.abortRun();
      await running;
      await request.aborted;
      assert.equal(request.completed, false);
    });
  });
}
