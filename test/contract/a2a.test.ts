/** A2A 1.0 over JSON-RPC, `POST /a2a/:id`: every method, and every way in which it refuses. */
import assert from "node:assert/strict";
import { before, type TestContext, test } from "node:test";
import { A2aCaller, eventsOf, now, said, textOf } from "../support/a2a.ts";
import { type HeldModel, heldModel } from "../support/held-model.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";

const agent = (model: string, more: object = {}) => ({ instructions: "Help.", model, memory: false, ...more });

const MANIFEST = {
  ...manifestWith({}, { tools: { add: { use: "add" } }, memory: { default: {} } }),
  providers: {
    demo: {
      use: "scripted",
      chunks: 4,
      delay: "20ms",
      models: {
        slow: { firstDelay: "60s" },
        down: { replies: [{ when: ".", error: "out of order" }] },
        loud: { replies: [{ when: ".", text: "LOUD" }] },
        adder: { replies: [{ when: ".", call: { tool: "add", input: { a: 1, b: 2 } } }] },
      },
    },
  },
  agents: {
    desk: agent("demo/echo"),
    slow: agent("demo/slow"),
    down: agent("demo/down"),
    adder: agent("demo/adder", { tools: ["add"] }),
    chosen: agent("{{ context.model }}"),
    friend: agent("demo/echo", { memory: "default" }),
    held: agent("held/one"),
  },
};

let service: TestService;
let peer: A2aCaller;
let held: HeldModel;
before(async (t) => {
  held = heldModel(t as TestContext);
  const providers = { ...MANIFEST.providers, held: held.settings };
  service = await startService(t as TestContext, { ...MANIFEST, providers }, { plugins: [held.plugins] });
  peer = new A2aCaller(service);
});

const fresh = () => `ctx-${Math.random().toString(36).slice(2)}`;

test("POST /a2a/:id: SendMessage gives the task when it has ended: the answer as an artifact, the message as its history", async () => {
  const task = await peer.send("desk", said("tea for two", { messageId: "m-1" }));
  const { id, contextId, status, artifacts, history, metadata } = task;
  assert.equal(status.state, "TASK_STATE_COMPLETED");
  assert.match(status.timestamp, /^\d{4}-.*\.\d{3}Z$/);
  assert.deepEqual(artifacts, [{ artifactId: "answer", parts: [{ text: "tea for two", mediaType: "text/plain" }] }]);
  assert.deepEqual(history, [
    { messageId: "m-1", role: "ROLE_USER", parts: [{ text: "tea for two" }], contextId, taskId: id },
  ]);
  assert.equal(metadata.finishReason, "stop");
  assert.equal(metadata.usage.completionTokens, 3);
  assert.deepEqual(await peer.get("desk", id), task);
});

test("POST /a2a/:id: SendMessage and GetTask leave out the history that is not asked for", async () => {
  const { id, history } = await peer.send("desk", { ...said("x"), configuration: { historyLength: 0 } });
  assert.equal(history, undefined);
  assert.equal((await peer.result("desk", "GetTask", { id, historyLength: 0 })).history, undefined);
  assert.equal((await peer.result("desk", "GetTask", { id, historyLength: 1 })).history.length, 1);
});

test("POST /a2a/:id: SendMessage with returnImmediately gives the task at work, which goes on", async () => {
  const { id, status } = await peer.send("desk", { ...said("one two three"), ...now });
  assert.equal(status.state, "TASK_STATE_WORKING");
  assert.equal(textOf(await peer.when("desk", id, "TASK_STATE_COMPLETED")), "one two three");
});

test("POST /a2a/:id: SendMessage gives the task as it stands when it takes longer than a request may; it goes on", async (t) => {
  const { slow } = MANIFEST.agents;
  const hurried = { ...MANIFEST, agents: { slow }, server: { limits: { request: "3s" } } };
  const caller = new A2aCaller(await startService(t, hurried));
  const { id, status } = await caller.send("slow", said("x"));
  assert.equal(status.state, "TASK_STATE_WORKING");
  assert.equal((await caller.get("slow", id)).status.state, "TASK_STATE_WORKING");
  await caller.result("slow", "CancelTask", { id });
});

test("POST /a2a/:id: SendStreamingMessage tells the task, the answer as it grows, and the end", async () => {
  held.hold("grows");
  const reply = await peer.open("held", "SendStreamingMessage", said("grows"));
  // Its first half is read before the model goes on.
  const events = await eventsOf(reply, (heard) => {
    if (heard.some(({ artifactUpdate }) => artifactUpdate !== undefined)) held.release("grows");
  });
  const [{ task }, ...rest] = events as [Loose, ...Loose[]];
  assert.deepEqual([task.status.state, task.artifacts], ["TASK_STATE_WORKING", undefined]);
  const updates = rest.slice(0, -1).map(({ artifactUpdate }) => artifactUpdate);
  assert.ok(updates.length >= 2, "it came in pieces");
  assert.deepEqual(
    updates.map(({ append = false }) => append),
    updates.map((_, index) => index > 0),
  );
  assert.match(updates.map(({ artifact }) => artifact.parts[0].text).join(""), /^half (\d+) rest \1$/);
  for (const { taskId, contextId, artifact } of updates)
    assert.deepEqual([taskId, contextId, artifact.artifactId], [task.id, task.contextId, "answer"]);
  const { statusUpdate } = rest.at(-1)!;
  assert.deepEqual([statusUpdate.taskId, statusUpdate.status.state], [task.id, "TASK_STATE_COMPLETED"]);
  assert.equal(statusUpdate.metadata.finishReason, "stop");
});

test("POST /a2a/:id: a client that leaves a stream does not end its task", async () => {
  const reply = await peer.open("desk", "SendStreamingMessage", said("it goes on without me"));
  const reader = reply.body!.getReader();
  let text = "";
  while (!/data: .*\n/.test(text)) text += Buffer.from((await reader.read()).value!);
  await reader.cancel();
  const { task } = JSON.parse(/data: (.*)\n/.exec(text)![1]!).result;
  assert.equal(textOf(await peer.when("desk", task.id, "TASK_STATE_COMPLETED")), "it goes on without me");
});

test("POST /a2a/:id: SubscribeToTask tells a task as it stands and what comes after, to as many as ask; of one that has ended it is refused", async () => {
  held.hold("late");
  const { id } = await peer.send("held", { ...said("late"), ...now });
  await held.isAsked("late");
  const replies = await Promise.all([1, 2].map(() => peer.open("held", "SubscribeToTask", { id })));
  held.release("late");
  const both = await Promise.all(replies.map((reply) => eventsOf(reply)));
  for (const [{ task }, ...rest] of both as [Loose, ...Loose[]][]) {
    const before = task.artifacts === undefined ? "" : textOf(task);
    const after = rest.slice(0, -1).map(({ artifactUpdate }) => artifactUpdate.artifact.parts[0].text);
    assert.match(before + after.join(""), /^half (\d+) rest \1$/);
    assert.equal(rest.at(-1)!.statusUpdate.status.state, "TASK_STATE_COMPLETED");
  }
  const [code, message] = await peer.error("held", "SubscribeToTask", { id });
  assert.deepEqual([code, message], [-32004, `task ${id} has ended: ask for the task instead`]);
});

test("POST /a2a/:id: CancelTask ends a task at work and its model call; a second one changes nothing, and a task that has ended is refused", async () => {
  const { id } = await peer.send("slow", { ...said("x"), ...now });
  const stream = peer.events("slow", "SubscribeToTask", { id });
  const task = await peer.result("slow", "CancelTask", { id });
  assert.equal(task.status.state, "TASK_STATE_CANCELED");
  assert.equal(task.status.message.parts[0].text, "the task was canceled");
  assert.equal((await stream).at(-1)!.statusUpdate.status.state, "TASK_STATE_CANCELED");
  assert.deepEqual(await peer.result("slow", "CancelTask", { id }), task);
  const lastRun = async () =>
    ((await (await service.get("/agents/slow/history?limit=1")).json()) as Loose).data.entries[0];
  for (let tries = 0; (await lastRun()).status === "running" && tries < 6_000; tries++);
  assert.equal((await lastRun()).status, "cancelled");
  const done = await peer.send("desk", said("x"));
  const [code] = await peer.error("desk", "CancelTask", { id: done.id });
  assert.equal(code, -32002);
});

test("POST /a2a/:id: a task that failed says why as far as a client may know, and one that made no sense is rejected", async () => {
  const failed = await peer.send("down", said("x"));
  assert.equal(failed.status.state, "TASK_STATE_FAILED");
  assert.equal(failed.status.message.parts[0].text, "model provider failed: unavailable");
  const rejected = await peer.send("chosen", { ...said("x"), metadata: { model: "demo/nothing" } });
  assert.equal(rejected.status.state, "TASK_STATE_REJECTED");
  assert.match(rejected.status.message.parts[0].text, /demo\/nothing/);
});

test("POST /a2a/:id: metadata of a request is the context of the run", async () => {
  const task = await peer.send("chosen", { ...said("x"), metadata: { model: "demo/loud" } });
  assert.equal(textOf(task), "LOUD");
});

test("POST /a2a/:id: an agent may use its tools: the answer is what it says itself", async () => {
  const task = await peer.send("adder", said("add"));
  assert.equal(task.status.state, "TASK_STATE_COMPLETED");
  assert.match(textOf(task), /"sum":3/);
});

test("POST /a2a/:id: contextId is the conversation: an agent with memory goes on with it", async () => {
  const contextId = fresh();
  for (const text of ["first", "second"]) {
    const task = await peer.send("friend", said(text, { contextId }));
    assert.deepEqual([task.contextId, task.status.state], [contextId, "TASK_STATE_COMPLETED"]);
  }
  const { data } = (await (await service.get(`/api/memory/conversations/${contextId}/messages`)).json()) as Loose;
  const told = data.messages.map(({ role, parts }: Loose) => [role, parts.at(-1).text]);
  assert.deepEqual(told, [
    ["user", "first"],
    ["assistant", "first"],
    ["user", "second"],
    ["assistant", "second"],
  ]);
});

test("POST /a2a/:id: a task is part of the trace of the request that began it", async () => {
  const traceId = "0af7651916cd43dd8448eb211c80319c";
  const traced = new A2aCaller(service, { traceparent: `00-${traceId}-b7ad6b7169203331-01` });
  await traced.send("desk", said("x"));
  const { data } = (await (await service.get("/agents/desk/history?limit=1")).json()) as Loose;
  assert.equal(data.entries[0].traceId, traceId);
});

test("POST /a2a/:id: parts reach the agent: texts, data as JSON, files with their bytes or their address", async () => {
  const parts = [
    { text: "look" },
    { data: { rows: [1, null] } },
    { raw: "aGk=", mediaType: "text/plain; charset=utf-8", filename: "hi.txt" },
    { url: "https://example.com/a.png", mediaType: "image/png" },
    { url: "data:text/plain;base64,aGk=" },
  ];
  const task = await peer.send("desk", said("", { parts }));
  assert.deepEqual(task.history[0].parts, parts);
  const { data } = (await (await service.get("/agents/desk/history?limit=1")).json()) as Loose;
  assert.deepEqual(data.entries[0].input[0].parts, [
    { type: "text", text: "look" },
    { type: "text", text: '{"rows":[1,null]}' },
    { type: "file", mediaType: "text/plain", url: "data:text/plain;base64,aGk=", filename: "hi.txt" },
    { type: "file", mediaType: "image/png", url: "https://example.com/a.png" },
    { type: "file", url: "data:text/plain;base64,aGk=" },
  ]);
});

test("POST /a2a/:id: ListTasks: the last changed first, by context, state and time, in pages", async () => {
  const contextId = fresh();
  const ids: string[] = [];
  for (const text of ["a", "b", "c"]) ids.unshift((await peer.send("desk", said(text, { contextId }))).id);
  const working = await peer.send("desk", { ...said("d", { contextId }), ...now });
  const listed = async (more: object = {}) => peer.result("desk", "ListTasks", { contextId, ...more });
  const idsOf = ({ tasks }: Loose) => tasks.map(({ id }: Loose) => id);
  await peer.when("desk", working.id, "TASK_STATE_COMPLETED");
  const all = await listed();
  assert.deepEqual(idsOf(all), [working.id, ...ids]);
  assert.deepEqual([all.totalSize, all.pageSize, all.nextPageToken], [4, 50, ""]);
  assert.equal(all.tasks[0].artifacts, undefined);
  assert.equal(textOf((await listed({ includeArtifacts: true })).tasks[3]), "a");
  const first = await listed({ pageSize: 3 });
  assert.deepEqual([idsOf(first), first.totalSize], [[working.id, ids[0], ids[1]], 4]);
  const second = await listed({ pageSize: 3, pageToken: first.nextPageToken });
  assert.deepEqual([idsOf(second), second.nextPageToken, second.totalSize], [[ids[2]], "", 4]);
  assert.deepEqual(idsOf(await listed({ status: "TASK_STATE_WORKING" })), []);
  assert.deepEqual(idsOf(await listed({ status: "TASK_STATE_COMPLETED", pageSize: 1 })), [working.id]);
  const after = all.tasks[2].status.timestamp;
  assert.deepEqual(idsOf(await listed({ statusTimestampAfter: after })), [working.id, ids[0]]);
  assert.deepEqual(idsOf(await peer.result("slow", "ListTasks", { contextId })), [], "of this agent alone");
});

const message = (change: object) => ({ message: { ...said("x").message, ...change } });

const REFUSED: [what: string, method: string, params: unknown, code: number, message: RegExp][] = [
  ["no params", "SendMessage", undefined, -32602, /params is required/],
  ["no message", "SendMessage", {}, -32602, /params\.message is required/],
  ["no id of the message", "SendMessage", message({ messageId: "" }), -32602, /params\.message\.messageId must/],
  ["no parts", "SendStreamingMessage", message({ parts: [] }), -32602, /params\.message\.parts must/],
  ["a message of the agent", "SendMessage", message({ role: "ROLE_AGENT" }), -32602, /params\.message\.role must/],
  [
    "a part that is nothing",
    "SendMessage",
    message({ parts: [{}] }),
    -32602,
    /parts\[0\] must have exactly one of text/,
  ],
  [
    "a part that is two",
    "SendMessage",
    message({ parts: [{ text: "x", data: 1 }] }),
    -32602,
    /parts\[0\] must have exactly/,
  ],
  ["a text that is none", "SendMessage", message({ parts: [{ text: 1 }] }), -32602, /parts\[0\]\.text must be string/],
  ["a file that is no base64", "SendMessage", message({ parts: [{ raw: "ä" }] }), -32602, /parts\[0\]\.raw must/],
  [
    "a file of no type",
    "SendMessage",
    message({ parts: [{ raw: "aGk=" }] }),
    -32602,
    /parts\[0\]: a file needs its media type/,
  ],
  [
    "an address of another kind",
    "SendMessage",
    message({ parts: [{ url: "file:///etc/passwd" }] }),
    -32602,
    /parts\[0\]\.url must/,
  ],
  [
    "an address that is none",
    "SendMessage",
    message({ parts: [{ url: "https://", mediaType: "a/b" }] }),
    -32602,
    /params\.message\.parts\[0\]\.url is not a valid URL/,
  ],
  ["a context that could be no conversation", "SendMessage", message({ contextId: "a/b" }), -32602, /contextId must/],
  ["a task that does not exist", "SendMessage", message({ taskId: "t-1" }), -32001, /task "t-1" does not exist/],
  [
    "a negative length",
    "SendMessage",
    { ...said("x"), configuration: { historyLength: -1 } },
    -32602,
    /historyLength must/,
  ],
  [
    "push notifications",
    "SendMessage",
    { ...said("x"), configuration: { taskPushNotificationConfig: { url: "http://x" } } },
    -32003,
    /./,
  ],
  ["an id that is none", "GetTask", { id: 1 }, -32602, /params\.id must be string/],
  ["a task that does not exist", "GetTask", { id: "../h/desk" }, -32001, /does not exist/],
  ["a task that does not exist", "CancelTask", { id: "none" }, -32001, /does not exist/],
  ["a task that does not exist", "SubscribeToTask", { id: "none" }, -32001, /does not exist/],
  ["a page that is too large", "ListTasks", { pageSize: 101 }, -32602, /params\.pageSize must be <= 100/],
  ["a token that no list gave", "ListTasks", { pageToken: "x" }, -32602, /params\.pageToken must/],
  ["a state that is none", "ListTasks", { status: "DONE" }, -32602, /params\.status must/],
  ["a time that is none", "ListTasks", { statusTimestampAfter: "yesterday" }, -32602, /statusTimestampAfter must/],
  ["push notifications", "CreateTaskPushNotificationConfig", { taskId: "x", url: "http://x" }, -32003, /./],
  ["push notifications of no use", "CreateTaskPushNotificationConfig", 1, -32003, /./],
  ["push notifications", "GetTaskPushNotificationConfig", { taskId: "x", id: "y" }, -32003, /./],
  ["push notifications", "ListTaskPushNotificationConfigs", { taskId: "x" }, -32003, /./],
  ["push notifications", "DeleteTaskPushNotificationConfig", { taskId: "x", id: "y" }, -32003, /./],
  ["another card", "GetExtendedAgentCard", {}, -32004, /one card/],
  [
    "a list that is none",
    "SendMessage",
    message({ extensions: 1 }),
    -32602,
    /params\.message\.extensions must be array/,
  ],
  ["a method of another protocol", "tools/call", {}, -32601, /A2A 1\.0 has no method "tools\/call"/],
  ["no params, a method that is none", "Reply", undefined, -32601, /A2A 1\.0 has no method "Reply"/],
];

for (const [what, method, params, code, expected] of REFUSED) {
  test(`POST /a2a/:id: ${method} with ${what} is refused with ${code}`, async () => {
    const refused = await peer.error("desk", method, params);
    assert.equal(refused[0], code);
    assert.match(refused[1], expected);
  });
}

test("POST /a2a/:id: a task takes no second message: the refusal says how to go on", async () => {
  const { id, contextId } = await peer.send("slow", { ...said("x"), ...now });
  const [code, running] = await peer.error("slow", "SendMessage", said("y", { taskId: id }));
  assert.equal(code, -32004);
  assert.match(running, new RegExp(`is running and takes no messages: .* contextId ${contextId}`));
  await peer.result("slow", "CancelTask", { id });
  assert.match(
    (await peer.error("slow", "SendMessage", said("y", { taskId: id })))[1],
    /has ended and takes no messages/,
  );
});

test("POST /a2a/:id: a task of another agent does not exist for this one", async () => {
  const { id } = await peer.send("desk", said("x"));
  const running = await peer.send("slow", { ...said("x"), ...now });
  for (const known of [id, running.id]) assert.equal((await peer.error("down", "GetTask", { id: known }))[0], -32001);
  await peer.result("slow", "CancelTask", { id: running.id });
});

const BODIES: [what: string, body: string, code: number][] = [
  ["no JSON", "{", -32700],
  ["nothing", "", -32700],
  ["a list of requests", "[]", -32600],
  ["no object", '"x"', -32600],
  ["of another version of JSON-RPC", '{"jsonrpc":"1.0","id":1,"method":"GetTask"}', -32600],
  ["without a method", '{"jsonrpc":"2.0","id":1}', -32600],
  ["with an id that is none", '{"jsonrpc":"2.0","id":{},"method":"GetTask","params":{"id":"x"}}', -32600],
];

for (const [what, body, code] of BODIES) {
  test(`POST /a2a/:id: a body that is ${what} is refused with ${code}, in JSON-RPC`, async () => {
    const reply = await service.post("/a2a/desk", body, { "a2a-version": "1.0" });
    const { jsonrpc, id, error } = (await reply.json()) as Loose;
    assert.deepEqual([reply.status, jsonrpc, error.code], [200, "2.0", code]);
    assert.equal(id, body.includes('"id":1') ? 1 : null, "the id of the request, where it has one");
    assert.ok(error.message.length > 3);
  });
}

test("POST /a2a/:id: versions: 1.0 by its header or by its methods, 0.3 without a header, others are refused", async () => {
  const sent = { jsonrpc: "2.0", id: 1, method: "GetTask", params: { id: "x" } };
  const codeOf = async (method: string, version?: string) => {
    const headers: Record<string, string> = version === undefined ? {} : { "a2a-version": version };
    const { error } = (await (await service.post("/a2a/desk", { ...sent, method }, headers)).json()) as Loose;
    return error.code;
  };
  assert.equal(await codeOf("GetTask", "1.0"), -32001);
  assert.equal(await codeOf("GetTask"), -32001);
  assert.equal(await codeOf("tasks/get"), -32001);
  assert.equal(await codeOf("tasks/get", "0.3"), -32001);
  assert.equal(await codeOf("tasks/get", "1.0"), -32601);
  assert.equal(await codeOf("GetTask", "0.3"), -32601);
  assert.equal(await codeOf("GetTask", "2.0"), -32009);
  assert.equal(await codeOf("GetTask", "one"), -32009);
});

test("POST /a2a/:id: errors of message/stream and tasks/resubscribe of 0.3 come in the stream that the client asks for", async () => {
  const params = { "message/stream": { message: { kind: "message" } }, "tasks/resubscribe": { id: "none" } };
  const codes = { "message/stream": -32602, "tasks/resubscribe": -32001 };
  for (const method of ["message/stream", "tasks/resubscribe"] as const) {
    const body = { jsonrpc: "2.0", id: 7, method, params: params[method] };
    const asked = (accept: string) => service.post("/a2a/desk", body, { accept });
    const streamed = await asked("text/event-stream");
    assert.match(streamed.headers.get("content-type")!, /^text\/event-stream/);
    const [, event = ""] = /^data: (.*)\n\n$/.exec(await streamed.text()) ?? [];
    const plain = await asked("application/json");
    assert.match(plain.headers.get("content-type")!, /^application\/json/);
    const answer = (await plain.json()) as Loose;
    assert.deepEqual([streamed.status, plain.status, answer.id, answer.error.code], [200, 200, 7, codes[method]]);
    assert.deepEqual(JSON.parse(event), answer);
  }
});

test("POST /a2a/:id: message/send of 0.3 with a list that is none is refused with -32602, in the words of the request", async () => {
  const message = { kind: "message", messageId: "m", role: "user", parts: [{ kind: "text", text: "x" }] };
  const of = async (change: object) => {
    const body = { jsonrpc: "2.0", id: 1, method: "message/send", params: { message: { ...message, ...change } } };
    const { error } = (await (await service.post("/a2a/desk", body)).json()) as Loose;
    return error;
  };
  assert.deepEqual(await of({ extensions: 1 }), { code: -32602, message: "params.message.extensions must be array" });
  assert.equal((await of({ referenceTaskIds: {} })).message, "params.message.referenceTaskIds must be array");
});

test("POST /a2a/:id: an agent that does not exist is 404 in the envelope, and a body of another type 415 as an error of JSON-RPC", async () => {
  const unknown = await service.post("/a2a/nobody", {});
  assert.deepEqual(
    [unknown.status, await unknown.json()],
    [404, { success: false, error: 'agent "nobody" does not exist' }],
  );
  const typed = await service.post("/a2a/desk", "x", { "content-type": "text/plain" });
  const error = { code: -32005, message: "content-type must be application/json, not text/plain" };
  assert.deepEqual([typed.status, await typed.json()], [415, { jsonrpc: "2.0", id: null, error }]);
  assert.equal(typed.headers.get("x-error-code"), "unsupported_media_type");
});

test("POST /a2a/:id: keys may be written as in the protocol buffers, are checked as those in camel case are, and keys of data stay as they are", async () => {
  const parts = [{ text: "tea" }, { data: { for_two: true }, media_type: "application/json" }];
  const message = { message_id: "m-snake", context_id: "ctx-snake", role: "ROLE_USER", parts };
  const configuration = { return_immediately: false, history_length: 0 };
  const task = await peer.send("desk", { message, configuration });
  assert.deepEqual([task.status.state, task.contextId, task.history ?? []], ["TASK_STATE_COMPLETED", "ctx-snake", []]);
  assert.match(textOf(task), /\{"for_two":true\}/);
  const listed = await peer.result("desk", "ListTasks", { context_id: "ctx-snake", page_size: 1 });
  assert.deepEqual(
    listed.tasks.map(({ id }: Loose) => id),
    [task.id],
  );
  const refusals: [method: string, params: object, message: string][] = [
    ["SendMessage", { message: { ...message, context_id: "no space" } }, "params.message.contextId must be at"],
    ["SendMessage", { message: { ...message, task_id: 7 } }, "params.message.taskId must be string"],
    ["ListTasks", { page_size: 1_000 }, "params.pageSize must be <= 100"],
  ];
  for (const [method, params, expected] of refusals) {
    const [code, said] = await peer.error("desk", method, params);
    assert.deepEqual([code, said.slice(0, expected.length)], [-32602, expected]);
  }
  const [code] = await peer.error("desk", "SendMessage", { message: { ...message, task_id: "unknown" } });
  assert.equal(code, -32001);
});

test("POST /a2a/:id: a message sent again gives the same task, running or ended, streamed or not, and the agent runs once", async () => {
  const runs = async (agent: string) =>
    ((await (await service.get(`/agents/${agent}/history?limit=1`)).json()) as Loose).data.total;
  const before = await runs("desk");
  const sent = said("tea for two");
  const task = await peer.send("desk", sent);
  assert.deepEqual(await peer.send("desk", sent), task);
  const [only, ...none] = await peer.events("desk", "SendStreamingMessage", sent);
  assert.deepEqual([only!.task.id, only!.task.status.state, none], [task.id, "TASK_STATE_COMPLETED", []]);
  assert.equal(await runs("desk"), before + 1);

  const slowly = said("a longer text that comes in pieces");
  const both = await Promise.all([peer.send("desk", slowly), peer.events("desk", "SendStreamingMessage", slowly)]);
  assert.equal(both[0].id, both[1][0]!.task.id);
  // The task itself, where it had ended when it was asked for again.
  const last = both[1].at(-1)!;
  assert.equal((last.statusUpdate ?? last.task).status.state, "TASK_STATE_COMPLETED");
  assert.equal(await runs("desk"), before + 2);
});

test("POST /a2a/:id: a different message with the messageId of an earlier one begins a task of its own, and each sent again finds its own", async () => {
  const [first, second] = ["one", "two"].map((text) => said(text, { messageId: "m-taken" }));
  const task = await peer.send("desk", first);
  const next = await peer.send("desk", second);
  assert.notEqual(next.id, task.id);
  assert.deepEqual([textOf(task), textOf(next)], ["one", "two"]);
  assert.deepEqual(await peer.send("desk", first), task);
  assert.deepEqual(await peer.send("desk", second), next);
  const other = await peer.send("friend", first);
  assert.notEqual(other.id, task.id, "each agent has its own");
});
