/** Tools that a person approves, over A2A: the task of `POST /a2a/:id` asks, and goes on with the answer. */
import assert from "node:assert/strict";
import { beforeEach, type TestContext, test } from "node:test";
import { A2aCaller, eventsOf, now, said, textOf } from "../support/a2a.ts";
import { AUTH, as, CONSOLE, PAY_PLUGIN, ran, serveApprovals } from "../support/approvals.ts";
import { heldModel } from "../support/held-model.ts";
import { calls, says } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";

const CALL = { tool: "pay", input: { amount: "{{ int(match[1]) }}" } };
const AGENT = { model: "demo/echo", tools: ["pay"] };
const MANIFEST = {
  memory: { chats: {} },
  providers: {
    demo: {
      use: "scripted",
      replies: [{ when: "^pay (\\d+)", call: CALL }],
    },
  },
  agents: { clerk: { ...AGENT, memory: false }, friend: { ...AGENT, memory: "chats" } },
};

beforeEach(() => void ran.splice(0));

async function serve(t: TestContext, manifest: Record<string, unknown> = {}) {
  const service = await serveApprovals(t, { ...MANIFEST, ...manifest });
  const peer = new A2aCaller(service);
  const approvals = (status = "open"): Promise<Loose[]> => dataOf(service.get(`/approvals?status=${status}`));
  const decide = (id: string, body: object, headers = {}) => service.post(`/approvals/${id}`, body, headers);
  return { service, peer, approvals, decide };
}

const answerTo = ({ id }: Loose, part: object, more: object = {}) => said("", { taskId: id, parts: [part], ...more });
const askedIn = ({ status }: Loose): Loose[] =>
  status.message.parts.flatMap((part: Loose) => (part.data === undefined ? [] : [part.data]));

test("POST /a2a/:id: a call that needs approval makes its task input-required, and the task says what is asked", async (t) => {
  const { peer, approvals } = await serve(t);
  const task = await peer.send("clerk", said("pay 5"));
  assert.equal(task.status.state, "TASK_STATE_INPUT_REQUIRED");
  const [{ approvalId, input, taskId }] = (await approvals()) as [Loose];
  assert.deepEqual([input, taskId], [{ amount: 5 }, task.id]);
  assert.deepEqual(askedIn(task), [{ approvalId, tool: "pay", input: { amount: 5 } }]);
  assert.match(task.status.message.parts[0].text, /asks for approval to call "pay".*"yes" or "no"/);
  assert.deepEqual(ran, []);
  assert.deepEqual(await peer.get("clerk", task.id), task);
  const { tasks } = await peer.result("clerk", "ListTasks", { status: "TASK_STATE_INPUT_REQUIRED" });
  assert.deepEqual(
    tasks.map(({ id }: Loose) => id),
    [task.id],
  );
});

for (const agent of ["clerk", "friend"]) {
  const which = agent === "clerk" ? "without memory" : "with memory";
  for (const part of [{ text: "Yes." }, { data: { approved: true, reason: "agreed" } }]) {
    const form = "text" in part ? "the text yes" : "a data part";
    test(`POST /a2a/:id: an agent ${which} goes on with ${form}: the tool runs once, and the task is completed`, async (t) => {
      const { peer, approvals } = await serve(t);
      const task = await peer.send(agent, said("pay 5"));
      const sent = answerTo(task, part);
      const done = await peer.send(agent, sent);
      assert.deepEqual([done.id, done.status.state], [task.id, "TASK_STATE_COMPLETED"]);
      assert.deepEqual(ran, [5]);
      assert.match(textOf(done), /"paid":5/);
      assert.deepEqual(
        done.history.map(({ role }: Loose) => role),
        ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"],
      );
      assert.equal((await approvals("approved"))[0]!.reason, "data" in part ? "agreed" : undefined);
      assert.deepEqual(await peer.send(agent, sent), done, "the same answer again changes nothing");
      assert.deepEqual(ran, [5]);
    });
  }
}

test("POST /a2a/:id: the conversation of an agent with memory has the question and what came of it as one turn", async (t) => {
  const { peer, service } = await serve(t);
  const first = await peer.send("friend", said("hello"));
  const task = await peer.send("friend", said("pay 5", { contextId: first.contextId }));
  await peer.send("friend", answerTo(task, { text: "yes" }));
  const { messages } = await dataOf(service.get(`/api/memory/conversations/${first.contextId}/messages`));
  assert.deepEqual(
    messages.map(({ role }: Loose) => role),
    ["user", "assistant", "user", "assistant"],
  );
  const call = messages[3].parts.find(({ type }: Loose) => type === "tool-pay");
  assert.deepEqual([call.state, call.output.paid], ["output-available", 5]);
});

test("POST /a2a/:id: a no is told to the agent, which goes on without the tool", async (t) => {
  const { peer, approvals } = await serve(t);
  const task = await peer.send("clerk", said("pay 5"));
  const done = await peer.send("clerk", answerTo(task, { data: { approved: false, reason: "too much" } }));
  assert.equal(done.status.state, "TASK_STATE_COMPLETED");
  assert.match(textOf(done), /too much/);
  assert.deepEqual(ran, []);
  assert.equal((await approvals("denied"))[0]!.taskId, task.id);
});

test("POST /a2a/:id: the answer may change the input; one that does not fit is refused, and the task goes on asking", async (t) => {
  const { peer } = await serve(t);
  const task = await peer.send("clerk", said("pay 5"));
  const [code, message] = await peer.error(
    "clerk",
    "SendMessage",
    answerTo(task, { data: { approved: true, input: { amount: "all" } } }),
  );
  assert.deepEqual([code, message], [-32602, "input.amount must be number"]);
  assert.equal((await peer.get("clerk", task.id)).status.state, "TASK_STATE_INPUT_REQUIRED");
  await peer.send("clerk", answerTo(task, { data: { approved: true, input: { amount: 4 } } }));
  assert.deepEqual(ran, [4]);
});

const REFUSED: [what: string, part: object, message: RegExp][] = [
  ["another text", { text: "maybe" }, /params\.message\.parts must be the answer .* "yes" or "no"/],
  ["a file", { raw: "aGk=", mediaType: "text/plain" }, /params\.message\.parts must be the answer/],
  ["no verdict", { data: { reason: "x" } }, /parts\[0\]\.data\.approved is required/],
  ["a verdict that is none", { data: { approved: "yes" } }, /parts\[0\]\.data\.approved must be boolean/],
  ["data that is no object", { data: true }, /parts\[0\]\.data must be an object/],
  ["another approval", { data: { approvalId: "x", approved: true } }, /parts\[0\]\.data\.approvalId must be one that/],
];

test("POST /a2a/:id: a message that is no answer is refused with what was expected, and nothing runs", async (t) => {
  const { peer } = await serve(t);
  const task = await peer.send("clerk", said("pay 5"));
  for (const [what, part, expected] of REFUSED) {
    const [code, message] = await peer.error("clerk", "SendMessage", answerTo(task, part));
    assert.equal(code, -32602, what);
    assert.match(message, expected, what);
  }
  assert.deepEqual(ran, []);
  assert.equal((await peer.get("clerk", task.id)).status.state, "TASK_STATE_INPUT_REQUIRED");
});

test("POST /a2a/:id: a task that asks for two approvals goes on when both are answered, after what it has said before", async (t) => {
  const tools = { pay: { use: "pay", approval: true } };
  const plugins = [pluginFolder(t, PAY_PLUGIN)];
  const { service, upstream } = await serveUpstream(t, { tools: ["pay"], memory: false }, { tools }, { plugins });
  const peer = new A2aCaller(service);
  const pays = [1, 2].map((amount) => ({ id: `c${amount}`, name: "pay", input: { amount } }));
  upstream.replies({ steps: [{ text: "One moment. " }, ...calls(pays).steps!] }, says("Done."));
  const task = await peer.send("assistant", said("both"));
  const [one, two] = askedIn(task) as [Loose, Loose];
  const refused = await peer.error("assistant", "SendMessage", answerTo(task, { text: "yes" }));
  assert.match(refused[1], /asks for 2 approvals/);
  const half = await peer.send("assistant", answerTo(task, { data: { approvalId: one.approvalId, approved: true } }));
  assert.equal(half.status.state, "TASK_STATE_INPUT_REQUIRED");
  assert.deepEqual(askedIn(half), [two]);
  assert.deepEqual(ran, [one.input.amount], "as in other runs, what is approved runs at once");
  const done = await peer.send("assistant", answerTo(task, { text: "no" }));
  assert.equal(done.status.state, "TASK_STATE_COMPLETED");
  assert.deepEqual(ran, [one.input.amount]);
  assert.deepEqual(
    done.artifacts[0].parts.map(({ text }: Loose) => text),
    ["One moment. ", "Done."],
  );
  assert.equal(upstream.requests.length, 2, "the model waits for both");
});

test("POST /a2a/:id: the answer to one of two approvals that is sent again has no further effect, whichever it was", async (t) => {
  const tools = { pay: { use: "pay", approval: true } };
  const plugins = [pluginFolder(t, PAY_PLUGIN)];
  const { service, upstream } = await serveUpstream(t, { tools: ["pay"], memory: false }, { tools }, { plugins });
  const peer = new A2aCaller(service);
  for (const which of [0, 1]) {
    const pays = [1, 2].map((amount) => ({ id: `c${amount}`, name: "pay", input: { amount } }));
    upstream.replies(calls(pays));
    const task = await peer.send("assistant", said("both"));
    const { approvalId } = askedIn(task)[which]!;
    const yes = answerTo(task, { data: { approvalId, approved: true } });
    const half = await peer.send("assistant", yes);
    const again = await peer.send("assistant", yes);
    assert.deepEqual([again.status, again.history], [half.status, half.history]);
    await peer.result("assistant", "CancelTask", { id: task.id });
  }
});

test("POST /approvals/:approvalId: the task that waits for it goes on by itself, and its readers are told", async (t) => {
  const { peer, approvals, decide } = await serve(t);
  const task = await peer.send("clerk", said("pay 5"));
  const stream = await peer.open("clerk", "SubscribeToTask", { id: task.id });
  const [{ approvalId }] = (await approvals()) as [Loose];
  await dataOf(decide(approvalId, { approved: true }));
  const told = await stream.text();
  assert.match(told, /TASK_STATE_INPUT_REQUIRED.*TASK_STATE_COMPLETED/s);
  const done = await peer.when("clerk", task.id, "TASK_STATE_COMPLETED");
  assert.match(textOf(done), /"paid":5/);
  assert.deepEqual(ran, [5]);
});

test("POST /a2a/:id: SubscribeToTask of a task that asks tells all that its agent says after the answer, however soon it ends", async (t) => {
  const { peer, approvals, decide } = await serve(t);
  const task = await peer.send("clerk", said("pay 5"));
  const replies = await Promise.all([1, 2].map(() => peer.open("clerk", "SubscribeToTask", { id: task.id })));
  const [{ approvalId }] = (await approvals()) as [Loose];
  await dataOf(decide(approvalId, { approved: true }));
  const done = await peer.when("clerk", task.id, "TASK_STATE_COMPLETED");
  for (const events of await Promise.all(replies.map((reply) => eventsOf(reply)))) {
    const words = events.flatMap(({ artifactUpdate }) => artifactUpdate?.artifact.parts ?? []);
    assert.equal(words.map(({ text }: Loose) => text).join(""), textOf(done));
    assert.equal(events.at(-1)!.statusUpdate.status.state, "TASK_STATE_COMPLETED");
  }
});

test("POST /a2a/:id: SendStreamingMessage ends with the question, and the answer streams what comes of it", async (t) => {
  const { peer } = await serve(t);
  const events = await peer.events("clerk", "SendStreamingMessage", said("pay 5"));
  const { taskId, status } = events.at(-1)!.statusUpdate;
  assert.equal(status.state, "TASK_STATE_INPUT_REQUIRED");
  const rest = await peer.events("clerk", "SendStreamingMessage", answerTo({ id: taskId }, { text: "yes" }));
  assert.equal(rest[0]!.task.status.state, "TASK_STATE_WORKING");
  assert.equal(rest.at(-1)!.statusUpdate.status.state, "TASK_STATE_COMPLETED");
  assert.deepEqual(ran, [5]);
});

test("POST /a2a/:id: a task whose question nobody answers in time is rejected, and takes no answer any more", async (t) => {
  const { peer, approvals } = await serve(t, { pay: { expires: "50ms" } });
  const task = await peer.send("clerk", said("pay 5"));
  await until(async () => (await approvals()).length === 0, "the expiry");
  const ended = await peer.when("clerk", task.id, "TASK_STATE_REJECTED");
  assert.match(ended.status.message.parts[0].text, /nobody answered in time/);
  assert.equal((await peer.error("clerk", "SendMessage", answerTo(task, { text: "yes" })))[0], -32004);
  assert.deepEqual(ran, []);
});

test("POST /a2a/:id: a canceled task does not go on when its question is answered", async (t) => {
  const { peer, approvals, decide } = await serve(t);
  const task = await peer.send("clerk", said("pay 5"));
  const [{ approvalId }] = (await approvals()) as [Loose];
  await peer.result("clerk", "CancelTask", { id: task.id });
  assert.equal((await decide(approvalId, { approved: true })).status, 409);
  const other = await peer.send("clerk", said("pay 6"));
  await peer.send("clerk", answerTo(other, { text: "yes" }));
  assert.deepEqual(ran, [6]);
  assert.equal((await peer.get("clerk", task.id)).status.state, "TASK_STATE_CANCELED");
});

test("POST /a2a/:id: with users, a task is answered by its own, and by the console alone where the tool says so", async (t) => {
  const { service, decide } = await serve(t, { auth: AUTH, pay: { approvers: "console" } });
  const [ada, bob] = [new A2aCaller(service, as("ada")), new A2aCaller(service, as("bob"))];
  const task = await ada.send("clerk", said("pay 5"));
  assert.equal((await bob.error("clerk", "SendMessage", answerTo(task, { text: "yes" })))[0], -32001);
  const [code, message] = await ada.error("clerk", "SendMessage", answerTo(task, { text: "yes" }));
  assert.deepEqual([code, message], [-32004, 'tool "pay" is approved by the console alone']);
  assert.deepEqual(ran, []);
  const open = (await (await service.get("/approvals", CONSOLE)).json()) as Loose;
  await dataOf(decide(open.data[0].approvalId, { approved: true }, CONSOLE));
  await ada.when("clerk", task.id, "TASK_STATE_COMPLETED");
  assert.deepEqual(ran, [5]);
});

test("GET /agents/:id/card: the card says which tools ask a person, by an extension and by a tag", async (t) => {
  const { service } = await serve(t);
  const { capabilities, skills } = await dataOf(service.get("/agents/clerk/card"));
  const [{ uri, required, params }] = capabilities.extensions;
  assert.deepEqual([uri, required, params], ["https://penstock.dev/a2a/approvals/v1", false, { tools: ["pay"] }]);
  assert.deepEqual(skills.find(({ id }: Loose) => id === "tool:pay").tags, ["tool", "approval"]);
});

test("POST /a2a/:id: returnImmediately gives the task at once, which asks later", async (t) => {
  const { peer } = await serve(t);
  const { id } = await peer.send("clerk", { ...said("pay 5"), ...now });
  assert.equal(askedIn(await peer.when("clerk", id, "TASK_STATE_INPUT_REQUIRED")).length, 1);
});

test("POST /a2a/:id: a user has at most server.limits.userTasks tasks that have not ended; those of others do not count", async (t) => {
  const { service } = await serve(t, { auth: AUTH, server: { limits: { userTasks: 3 } } });
  const [ada, bob] = [new A2aCaller(service, as("ada")), new A2aCaller(service, as("bob"))];
  const all = await Promise.all(
    [1, 2, 3, 4, 5].map((amount) => ada.rpc("clerk", "SendMessage", said(`pay ${amount}`))),
  );
  const tasks = all.flatMap(({ result }) => result?.task ?? []);
  const refused = all.flatMap(({ error }) => error ?? []);
  assert.deepEqual([tasks.length, refused.length], [3, 2]);
  assert.match(refused[0].message, /the user has 3 open tasks already: wait until one has ended, or cancel one/);
  assert.equal(service.service.meters.limits.refused("server.limits.userTasks"), 2);
  assert.equal((await bob.send("clerk", said("hello"))).status.state, "TASK_STATE_COMPLETED");
  await ada.result("clerk", "CancelTask", { id: tasks[0].id });
  assert.equal((await ada.send("clerk", said("hello"))).status.state, "TASK_STATE_COMPLETED");
  await ada.send("clerk", answerTo(tasks[1], { text: "yes" }));
  assert.equal((await ada.send("clerk", said("hello"))).status.state, "TASK_STATE_COMPLETED");
});

test("POST /a2a/:id: a yes that is sent again does not answer the next question", async (t) => {
  const tools = { pay: { use: "pay", approval: true } };
  const plugins = [pluginFolder(t, PAY_PLUGIN)];
  const { service, upstream } = await serveUpstream(t, { tools: ["pay"], memory: false }, { tools }, { plugins });
  const peer = new A2aCaller(service);
  const pay = (id: string, amount: number) => calls([{ id, name: "pay", input: { amount } }]);
  upstream.replies(pay("c1", 1), pay("c2", 1000), says("Done."));
  const task = await peer.send("assistant", said("go"));
  const yes = answerTo(task, { text: "yes" });
  const second = await peer.send("assistant", yes);
  assert.deepEqual([second.status.state, ran], ["TASK_STATE_INPUT_REQUIRED", [1]]);
  assert.deepEqual(askedIn(await peer.send("assistant", yes)), askedIn(second));
  assert.deepEqual(ran, [1]);
  await peer.send("assistant", answerTo(task, { text: "yes" }));
  assert.deepEqual(ran, [1, 1000]);
});

test("POST /a2a/:id: the history of a task that asks is bounded in characters, whatever is said to it", async (t) => {
  const { peer } = await serve(t);
  const task = await peer.send("clerk", said("pay 5"));
  const wrong = { data: { approved: true, input: { amount: "x" } } };
  for (let count = 0; count < 6; count++)
    await peer.rpc("clerk", "SendMessage", answerTo(task, wrong, { metadata: { filler: "x".repeat(400_000) } }));
  const { history } = await peer.get("clerk", task.id);
  assert.ok(JSON.stringify(history).length < 1.5e6);
  assert.equal(history[0].parts[0].text, "pay 5");
});

test("POST /a2a/:id: a message that is sent again finds its task, also at server.limits.userTasks", async (t) => {
  const { service } = await serve(t, { auth: AUTH, server: { limits: { userTasks: 1 } } });
  const ada = new A2aCaller(service, as("ada"));
  const message = said("pay 5");
  const task = await ada.send("clerk", message);
  assert.equal((await ada.send("clerk", message)).id, task.id);
  assert.equal(service.service.meters.limits.refused("server.limits.userTasks"), 0, "it is answered");
});

test("POST /a2a/:id: a task is refused that is one more than server.limits.userExecutions allows, and leaves nothing; another is served once one has ended", async (t) => {
  const held = heldModel(t);
  held.hold("wait");
  const providers = { ...MANIFEST.providers, held: held.settings };
  const agents = { ...MANIFEST.agents, held: { model: "held/one", memory: false } };
  const more = { auth: AUTH, server: { limits: { userExecutions: 1 } }, providers, agents };
  const service = await serveApprovals(t, { ...MANIFEST, ...more }, { plugins: [held.plugins] });
  const ada = new A2aCaller(service, as("ada"));
  const { id } = await ada.send("held", { ...said("wait"), ...now });
  await held.isAsked("wait");
  const message = said("more");
  const [, text] = await ada.error("held", "SendMessage", message);
  assert.match(text, /server\.limits\.userExecutions/);
  const { limits } = service.service.meters;
  assert.deepEqual(
    ["server.limits.userExecutions", "server.limits.userTasks"].map((name) => limits.refused(name)),
    [1, 0],
  );
  const listed = await ada.result("held", "ListTasks", {});
  assert.deepEqual(
    listed.tasks.map((task: Loose) => task.id),
    [id],
  );
  const bob = new A2aCaller(service, as("bob"));
  assert.equal((await bob.send("held", said("other"))).status.state, "TASK_STATE_COMPLETED");
  await ada.result("held", "CancelTask", { id });
  assert.equal((await ada.send("held", message)).status.state, "TASK_STATE_COMPLETED");
});

test("DELETE /api/memory/conversations/:conversationId: tasks of that context are canceled, those at work and those that ask", async (t) => {
  const held = heldModel(t);
  held.hold("wait");
  const providers = { ...MANIFEST.providers, held: held.settings };
  const agents = { ...MANIFEST.agents, held: { model: "held/one", memory: "chats" } };
  const service = await serveApprovals(t, { ...MANIFEST, auth: AUTH, providers, agents }, { plugins: [held.plugins] });
  const ada = new A2aCaller(service, as("ada"));
  const asks = await ada.send("friend", said("pay 5"));
  const works = await ada.send("held", { ...said("wait"), ...now });
  await held.isAsked("wait");
  for (const { contextId } of [asks, works]) {
    const reply = await fetch(`${service.url}/api/memory/conversations/${contextId}?agentId=friend`, {
      method: "DELETE",
      headers: as("ada"),
    });
    assert.equal(reply.status, 200, await reply.text());
  }
  await ada.when("friend", asks.id, "TASK_STATE_CANCELED");
  await ada.when("held", works.id, "TASK_STATE_CANCELED");
  assert.equal((await ada.error("friend", "SendMessage", answerTo(asks, { text: "yes" })))[0], -32004);
  assert.deepEqual(ran, []);
});

test("POST /a2a/:id: an answer that is longer than a task may have fails it", async (t) => {
  const { service, upstream } = await serveUpstream(t, { memory: false });
  const peer = new A2aCaller(service);
  upstream.replies(says("x".repeat(4 * 1024 * 1024 + 1)));
  const { status, artifacts } = await peer.send("assistant", said("x"));
  assert.equal(status.state, "TASK_STATE_FAILED");
  assert.equal(status.message.parts[0].text, "the answer is longer than 4194304 characters");
  assert.equal(artifacts, undefined);
});
