/** A task is a run that is kept: it outlasts its process, with what it asks, who follows it and who is told of it. */
import assert from "node:assert/strict";
import { existsSync, rmSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { decodeJwt } from "jose";
import { newRecord } from "../../core/a2a/new-task.ts";
import { ended } from "../../core/a2a/task.ts";
import { OPEN_TASKS, TaskRows } from "../../core/a2a/task-rows.ts";
import { admit } from "../../core/approvals/admission.ts";
import { ApprovalRows } from "../../core/approvals/rows.ts";
import { EVERYTHING, NOBODY } from "../../core/identity/principal.ts";
import { idOfRow } from "../../core/storage/collection.ts";
import { workflowIndex } from "../../core/storage/keys.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { ApprovalNeeded } from "../../core/tools/tool.ts";
import { removeEnded } from "../../core/workflows/retention.ts";
import { A2aCaller, eventsOf, now, said, textOf } from "../support/a2a.ts";
import { PENSTOCK, type Served, serve } from "../support/command-line.ts";
import { calls, says, startOpenAIUpstream } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { silent } from "../support/providers.ts";
import { checkedClaims, pushReceiver } from "../support/push-receiver.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";
import { origin, tool } from "../support/tools.ts";

const peerOf = ({ url }: Served) =>
  new A2aCaller({
    post: (path, body, headers = {}) =>
      fetch(url + path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(body),
      }),
  });

/** Notes each call with its key, and waits while the file `held` is there. */
const CHARGE = (folder: string) => `import { appendFileSync, existsSync } from "node:fs";
  export default { kind: "tool", name: "charge", execute: async ({ name }, { idempotencyKey }) => {
    appendFileSync(${JSON.stringify(join(folder, "charges"))}, name + " " + idempotencyKey + "\\n");
    while (name.startsWith("held") && existsSync(${JSON.stringify(join(folder, "held"))}))
      await new Promise((resolve) => setTimeout(resolve, 20));
    return { charged: name }; } };`;

/** A real upstream whose model charges by a tool and says so. The first answer to "told" stops after its half. */
async function charging(t: TestContext, agent: object = {}, charge: object = {}) {
  const cwd = await temporaryFolder(t);
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  const asked = (name: string) => upstream.requests.filter(({ lastUserText }) => lastUserText === name).length;
  upstream.fallback(({ lastUserText, toolOutputs }) => {
    const call = calls([{ name: "charge", input: { name: lastUserText } }]);
    const polite = lastUserText.startsWith("polite") ? [{ text: "One moment. " }] : [];
    if (toolOutputs.length === 0) return { ...call, steps: [...polite, ...call.steps!] };
    if (lastUserText.startsWith("told") && asked(lastUserText) === 2)
      return { steps: [{ text: "half of " }, { stall: true }] };
    return says(`${lastUserText} is charged`, { chunks: 3 });
  });
  const provider = { use: "openai-compatible", baseURL: upstream.baseURL, apiKey: "test", retries: 0 };
  const manifest = {
    ...manifestWith(
      { model: "up/m", tools: ["charge"], memory: false, ...agent },
      { tools: { charge: { use: "charge", ...charge } } },
    ),
    store: "sqlite:tasks.db",
    plugins: ["plugins"],
    providers: { up: provider },
    server: { limits: { drain: "100ms" } },
  };
  await mkdir(join(cwd, "plugins/tools"), { recursive: true });
  await writeFile(join(cwd, "plugins/tools/charge.mjs"), CHARGE(cwd));
  await writeFile(join(cwd, "service.yaml"), JSON.stringify(manifest));
  await writeFile(join(cwd, "held"), "");
  const charges = async () => {
    if (!existsSync(join(cwd, "charges"))) return [];
    return (await readFile(join(cwd, "charges"), "utf8")).trim().split("\n");
  };
  return {
    cwd,
    charges,
    asked,
    start: () => serve(t, [process.execPath, PENSTOCK, "--port", "0"], { cwd }),
    release: () => rmSync(join(cwd, "held")),
  };
}

const artifactIn = (events: readonly Loose[]): string => {
  let text = "";
  for (const { artifactUpdate: update } of events) {
    if (update === undefined) continue;
    const more = update.artifact.parts.map((part: Loose) => part.text).join("");
    text = update.append ? text + more : more;
  }
  return text;
};

for (const signal of ["SIGKILL", "SIGTERM"] as const)
  test(`POST /a2a/:id: of 32 tasks with a tool none is lost and none is charged twice when the process ends by ${signal}, and those who follow go on`, async (t) => {
    const { charges, asked, start, release } = await charging(t);
    const names = Array.from({ length: 32 }, (_, index) => `${index % 2 === 0 ? "held" : "told"}-${index}`);
    const first = await start();
    const messages = names.map((name) => said(name));
    const begun = await Promise.all(messages.map((message) => peerOf(first).send("assistant", { ...message, ...now })));
    // Half of them are at their tool now, and half have said a half of their answer.
    await until(async () => (await charges()).length === 32, "the charges");
    await until(() => names.every((name) => asked(name) === (name.startsWith("told") ? 2 : 1)), "the second steps");
    const cut = await Promise.all(
      begun.slice(0, 4).map(({ id }) => peerOf(first).open("assistant", "SubscribeToTask", { id })),
    );
    const read = cut.map((reply) => reply.text().catch(() => ""));
    await first.interrupt(signal);
    await Promise.all(read);

    const second = await start();
    const peer = peerOf(second);
    const held = begun.filter((_, index) => index % 2 === 0);
    const followed = await Promise.all(held.map(({ id }) => peer.open("assistant", "SubscribeToTask", { id })));
    release();
    for (const [index, reply] of followed.entries()) {
      const events = await eventsOf(reply);
      assert.equal(events.at(-1)!.statusUpdate.status.state, "TASK_STATE_COMPLETED", JSON.stringify(events));
      assert.equal(artifactIn(events), `${names[2 * index]} is charged`);
    }
    for (const [index, { id }] of begun.entries())
      assert.equal(textOf(await peer.when("assistant", id, "TASK_STATE_COMPLETED")), `${names[index]} is charged`);
    const keys = new Set(await charges());
    assert.equal(keys.size, 32, "a call that is made again has its key");
    for (const name of names) {
      const [made, steps] = [(await charges()).filter((line) => line.startsWith(`${name} `)).length, asked(name)];
      // What had ended is not done again; what had not is.
      if (name.startsWith("told")) assert.deepEqual([made, steps], [1, 3], name);
      else assert.deepEqual([made, steps], [2, 2], name);
    }
    const again = await peer.send("assistant", messages[5]!);
    assert.equal(again.id, begun[5]!.id);
    assert.equal(asked(names[5]!), 3, "its message begins no other");
    const { totalSize } = await peer.result("assistant", "ListTasks", { status: "TASK_STATE_COMPLETED" });
    assert.equal(totalSize, 32);
  });

test("POST /a2a/:id: a task of an agent with recovery: fail has failed when its process was killed (kill -9), and says so in lists", async (t) => {
  const { charges, start } = await charging(t, { recovery: "fail" });
  const first = await start();
  const { id } = await peerOf(first).send("assistant", { ...said("held-1"), ...now });
  await until(async () => (await charges()).length === 1, "the charge");
  await first.interrupt("SIGKILL");
  const peer = peerOf(await start());
  const { status } = await peer.when("assistant", id, "TASK_STATE_FAILED");
  assert.equal(status.message.parts[0].text, "interrupted: the process ended while it ran");
  const { tasks } = await peer.result("assistant", "ListTasks", { status: "TASK_STATE_FAILED" });
  assert.deepEqual(
    tasks.map((task: Loose) => task.id),
    [id],
  );
  assert.equal((await charges()).length, 1);
});

const recordOf = (text: string) => {
  const message = { messageId: text, role: "ROLE_USER" as const, parts: [{ text }] };
  const fresh = { message, contextId: undefined, context: undefined };
  return newRecord("assistant", fresh, EVERYTHING, { user: null, caller: NOBODY });
};

/** A task that asks, as an older release has stored it: the question is one of no run, and the task has the input of the next one. */
async function asksAsOlder(store: Store, name: string, expires = 3_600_000) {
  const record = recordOf(name);
  const input = { name };
  const claim = { kind: "chat", agentId: "assistant", toolCallId: "call_1", taskId: record.task.id } as const;
  const asks = tool(() => null, { name: "charge", approval: { expires, consoleOnly: false, asks: () => true } });
  const needed: unknown = await admit(new ApprovalRows(store, () => 3_600_000), {
    tool: asks,
    input,
    origin: origin({}, { approval: claim }),
  }).catch((error) => error);
  assert.ok(needed instanceof ApprovalNeeded, String(needed));
  const { approvalId } = needed;
  const approval = { approvalId, toolCallId: "call_1", toolName: "charge", input };
  const call = { type: "tool-charge", toolCallId: "call_1", state: "approval-requested", input };
  const asking = ended(record, { state: "TASK_STATE_INPUT_REQUIRED", approvals: [approval] });
  const said = [
    { role: "user", parts: [{ type: "text", text: name }] },
    { role: "assistant", parts: [{ type: "step-start" }, { ...call, approval: { id: approvalId } }] },
  ];
  const old = { ...asking, waiting: { approvals: [approval], input: said } };
  await new TaskRows(store, false).create(old);
  return { old, id: record.task.id, approvalId };
}

const answer = ({ url }: Served, id: string, approved: boolean) =>
  fetch(`${url}/approvals/${id}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ approved }),
  });

test("POST /approvals/:approvalId: a task that an older release has stored goes on by itself when it is answered, and ends when nobody answers in time", async (t) => {
  const { cwd, charges, start, release } = await charging(t, {}, { approval: true });
  release();
  const store = await openSqliteStore({ file: join(cwd, "tasks.db"), logger: silent });
  const [yes, late, cancelled] = [
    await asksAsOlder(store, "yes"),
    await asksAsOlder(store, "late", 0),
    await asksAsOlder(store, "cancelled"),
  ];
  await store.close();
  const service = await start();
  const peer = peerOf(service);
  assert.equal((await answer(service, yes.approvalId, true)).status, 200);
  // Nobody asks for the task, which would make it go on too.
  await until(async () => (await charges()).length === 1, "the charge");
  assert.equal(textOf(await peer.when("assistant", yes.id, "TASK_STATE_COMPLETED")), "yes is charged");
  await peer.when("assistant", late.id, "TASK_STATE_REJECTED");
  assert.equal(
    (await peer.result("assistant", "CancelTask", { id: cancelled.id })).status.state,
    "TASK_STATE_CANCELED",
  );
  assert.deepEqual(
    (await charges()).map((line) => line.split(" ")[0]),
    ["yes"],
  );
});

test("POST /a2a/:id: a task that an older release has stored ends as its run, whose process was killed (kill -9) before the task knew of it", async (t) => {
  const { cwd, charges, start, release } = await charging(t, {}, { approval: true });
  const open = () => openSqliteStore({ file: join(cwd, "tasks.db"), logger: silent });
  let store = await open();
  const { old, id, approvalId } = await asksAsOlder(store, "held");
  await store.close();
  const first = await start();
  assert.equal((await answer(first, approvalId, true)).status, 200);
  await peerOf(first).get("assistant", id);
  await until(async () => (await charges()).length === 1, "the charge");
  await first.interrupt("SIGKILL");
  // As it was before the run began.
  store = await open();
  const rows = new TaskRows(store, false);
  const { record, revision } = (await rows.read("assistant", id))!;
  await rows.change(record, old, revision);
  await store.close();
  const peer = peerOf(await start());
  await until(async () => (await charges()).length === 2, "the call that is made again");
  release();
  assert.equal(textOf(await peer.when("assistant", id, "TASK_STATE_COMPLETED")), "held is charged");
  assert.equal(new Set(await charges()).size, 1);
});

test("POST /a2a/:id: what an agent says in a task is stored with its run alone: every method gives it, after kill -9 and of rows of older releases too; a task whose run is gone does not exist", async (t) => {
  const { cwd, start, release } = await charging(t, {}, { approval: true });
  release();
  const first = await start();
  const asking = async (name: string) => (await peerOf(first).send("assistant", said(name))).id as string;
  const [plain, old] = [await asking("polite-plain"), await asking("polite-old")];
  assert.equal(textOf(await peerOf(first).get("assistant", plain)), "One moment. ");
  await first.interrupt("SIGKILL");
  const stored = async <T>(work: (rows: TaskRows) => Promise<T>): Promise<T> => {
    const store = await openSqliteStore({ file: join(cwd, "tasks.db"), logger: silent });
    const done = await work(new TaskRows(store, false));
    await store.close();
    return done;
  };
  const saidInRows = (rows: TaskRows) =>
    Promise.all(
      [plain, old].map(async (id) => /One moment|is charged/.test(JSON.stringify(await rows.read("assistant", id)))),
    );
  await stored(async (rows) => {
    assert.deepEqual(await saidInRows(rows), [false, false]);
    // As an older release has stored it.
    const { record, revision } = (await rows.read("assistant", old))!;
    const { userId, told = 0 } = record.run!;
    const artifacts = [{ artifactId: "answer", parts: [{ text: "One moment. ", mediaType: "text/plain" }] }];
    const older = { ...record, run: { userId, seen: told }, task: { ...record.task, artifacts } };
    await rows.change(record, older, revision);
  });

  const second = await start();
  const peer = peerOf(second);
  for (const id of [plain, old]) {
    assert.equal(textOf(await peer.get("assistant", id)), "One moment. ");
    const follower = await peer.open("assistant", "SubscribeToTask", { id });
    let answered: Promise<Loose> | undefined;
    const events = await eventsOf(follower, () => {
      answered ??= peer.send("assistant", said("yes", { taskId: id }));
    });
    const done = (await answered)!;
    assert.equal(textOf(events[0]!.task), "One moment. ");
    assert.equal(done.status.state, "TASK_STATE_COMPLETED");
    const parts = done.artifacts[0].parts.map(({ text }: Loose) => text);
    assert.deepEqual(parts, ["One moment. ", `polite-${id === old ? "old" : "plain"} is charged`]);
    assert.match(artifactIn(events.slice(1)), /^(|polite-\w+ is charged)$/);
    assert.deepEqual(await peer.get("assistant", id), done);
  }
  const list = async (params: object) => (await peer.result("assistant", "ListTasks", params)).tasks as Loose[];
  assert.deepEqual((await list({ includeArtifacts: true })).map(textOf).toSorted(), [
    "One moment. polite-old is charged",
    "One moment. polite-plain is charged",
  ]);
  assert.deepEqual(
    (await list({})).map(({ artifacts }) => artifacts),
    [undefined, undefined],
  );
  await second.interrupt("SIGTERM");
  await stored(async (rows) => {
    assert.deepEqual(await saidInRows(rows), [false, true], "rows of older releases keep what they have");
    const { signal } = new AbortController();
    const prefix = `${workflowIndex("agent:assistant")}completed/`;
    await removeEnded(rows.store, "completed", { prefix }, Number.POSITIVE_INFINITY, signal);
  });
  const third = peerOf(await start());
  for (const id of [plain, old]) assert.equal((await third.error("assistant", "GetTask", { id }))[0], -32001);
  assert.deepEqual((await third.result("assistant", "ListTasks", { includeArtifacts: true })).tasks, []);
});

test("POST /a2a/:id: a task that was stored before its run began is begun by the next process; one that an older release had at work has failed", async (t) => {
  const { cwd, asked, start, release } = await charging(t);
  release();
  const store = await openSqliteStore({ file: join(cwd, "tasks.db"), logger: silent });
  const rows = new TaskRows(store, false);
  const [left, old] = [recordOf("left"), recordOf("old")];
  await rows.create({ ...left, run: { userId: "", seen: 0 } });
  await rows.create(old);
  await store.close();
  const peer = peerOf(await start());
  assert.equal(textOf(await peer.when("assistant", left.task.id, "TASK_STATE_COMPLETED")), "left is charged");
  const { status } = await peer.get("assistant", old.task.id);
  assert.equal(status.state, "TASK_STATE_FAILED");
  assert.equal(status.message.parts[0].text, "the service stopped while the task was running");
  assert.deepEqual([asked("left"), asked("old")], [2, 0]);
});

test("POST /a2a/:id: SendMessage gives its task also when another process has begun the run, because this one was taken for gone after it had stored the task", async (t) => {
  const given = globalThis as { penstockGivenStore?: Store };
  const store = 'export default { kind: "store", create: () => globalThis.penstockGivenStore };';
  const plugins = [pluginFolder(t, { "stores/given.mjs": store })];
  const manifest = manifestWith({ model: "demo/echo", memory: false }, { store: "given" });
  const start = (on: Store) => {
    given.penstockGivenStore = { ...on, kind: "sqlite" };
    return startService(t, manifest, { plugins });
  };
  const base = createMemoryStore();
  let isLeft = true;
  const commit: Store["commit"] = async (changes) => {
    const revision = await base.commit(changes);
    const [row] = (await base.scan({ prefix: OPEN_TASKS, limit: 1 })).values();
    if (row !== undefined && isLeft) {
      isLeft = false;
      await new A2aCaller(await start(base)).when("assistant", idOfRow(row), "TASK_STATE_COMPLETED");
    }
    return revision;
  };
  const service = await start({ ...base, commit });
  const peer = new A2aCaller(service);
  const task = await peer.send("assistant", said("once"));
  assert.deepEqual([task.status.state, textOf(task)], ["TASK_STATE_COMPLETED", "once"]);
  assert.deepEqual(await peer.get("assistant", task.id), task);
  assert.equal((await dataOf(service.get("/agents/assistant/runs"))).length, 1);
});

test("POST /a2a/:id: what a receiver was to be told when the process was killed (kill -9) after the end of the task is told after the next start", async (t) => {
  const cwd = await temporaryFolder(t);
  const server = { push: { enabled: true, allowPrivate: ["127.0.0.1"], timeout: "60s" } };
  const manifest = {
    ...manifestWith({ model: "demo/echo" }, { server }),
    store: "sqlite:tasks.db",
    providers: { demo: { use: "scripted" } },
  };
  await writeFile(join(cwd, "service.yaml"), JSON.stringify(manifest));
  const start = () => serve(t, [process.execPath, PENSTOCK, "--port", "0"], { cwd });
  // The first request is never answered.
  const receiver = await pushReceiver(t, (index) => (index === 0 ? null : 204));
  const first = await start();
  const push = { url: receiver.url, token: "token-of-the-receiver" };
  const configuration = { taskPushNotificationConfig: push };
  const { id } = await peerOf(first).send("assistant", { ...said("hello"), configuration });
  await receiver.when(1);
  await first.interrupt("SIGKILL");

  const second = await start();
  const [before, after] = await receiver.when(2);
  assert.equal(after!.body.task.id, id);
  assert.equal(after!.body.task.status.state, "TASK_STATE_COMPLETED");
  assert.deepEqual(after!.body, before!.body);
  const [one, two] = [before!, after!].map((told) => decodeJwt(told.headers["x-a2a-notification-jwt"] as string));
  assert.equal(one!.jti, two!.jti);
  // The key of the first process signs after it as well.
  await checkedClaims(second.url, before!, receiver.url);
  await checkedClaims(second.url, after!, receiver.url);
  for (const served of [first, second])
    assert.doesNotMatch(served.stdout() + served.stderr(), /token-of-the-receiver|key=k/);
});

/** Notes each call with its key. */
const PAY = (folder: string) => `import { appendFileSync } from "node:fs";
  export default { kind: "tool", name: "pay", approval: true, execute(input, { idempotencyKey }) {
    appendFileSync(${JSON.stringify(join(folder, "runs"))}, input.amount + " " + idempotencyKey + "\\n");
    return { paid: input.amount }; } };`;

for (const memory of [false, "chats"]) {
  test(`POST /a2a/:id: a task of an agent ${memory ? "with" : "without"} memory that asks for approval outlives its process by kill -9, between question and answer and after the answer`, async (t) => {
    const cwd = await temporaryFolder(t);
    const call = { tool: "pay", input: { amount: "{{ int(match[1]) }}" } };
    const manifest = {
      ...manifestWith(
        { model: "demo/echo", tools: ["pay"], memory },
        { tools: { pay: { use: "pay" } }, memory: { chats: {} } },
      ),
      store: "sqlite:tasks.db",
      plugins: ["plugins"],
      providers: { demo: { use: "scripted", replies: [{ when: "^pay (\\d+)", call }] } },
    };
    await mkdir(join(cwd, "plugins/tools"), { recursive: true });
    await writeFile(join(cwd, "plugins/tools/pay.mjs"), PAY(cwd));
    await writeFile(join(cwd, "service.yaml"), JSON.stringify(manifest));
    const start = () => serve(t, [process.execPath, PENSTOCK, "--port", "0"], { cwd });
    const paid = async (amount: number) =>
      (await readFile(join(cwd, "runs"), "utf8").catch(() => ""))
        .split("\n")
        .filter((line) => line.startsWith(`${amount} `));

    const first = await start();
    const [one, two] = [
      await peerOf(first).send("assistant", said("pay 1")),
      await peerOf(first).send("assistant", said("pay 2")),
    ];
    assert.deepEqual([one.status.state, two.status.state], ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_INPUT_REQUIRED"]);
    await first.interrupt("SIGKILL");

    const second = await start();
    const peer = peerOf(second);
    assert.deepEqual(await peer.get("assistant", one.id), one);
    const done = await peer.send("assistant", said("yes", { taskId: one.id }));
    assert.equal(done.status.state, "TASK_STATE_COMPLETED", JSON.stringify(done.status));
    assert.match(textOf(done), /"paid":1/);
    const { approvalId } = two.status.message.parts[1].data;
    const answered = await fetch(`${second.url}/approvals/${approvalId}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ approved: true }),
    });
    assert.equal(answered.status, 200);
    await second.interrupt("SIGKILL");

    const third = peerOf(await start());
    assert.match(textOf(await third.when("assistant", two.id, "TASK_STATE_COMPLETED")), /"paid":2/);
    assert.equal((await paid(1)).length, 1);
    // A call that had not ended when its process was killed is made again, with its key.
    assert.equal(new Set(await paid(2)).size, 1);
  });
}
