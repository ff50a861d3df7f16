/** A process that is killed while a task runs: the next one says of it that it failed. One that is killed while a task asks: it goes on. */
import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { decodeJwt } from "jose";
import { A2aCaller, now, said, textOf } from "../support/a2a.ts";
import { PENSTOCK, type Served, serve } from "../support/command-line.ts";
import { checkedClaims, pushReceiver } from "../support/push-receiver.ts";
import { manifestWith } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

const MANIFEST = {
  ...manifestWith({ model: "demo/slow" }),
  store: "sqlite:tasks.db",
  providers: { demo: { use: "scripted", models: { slow: { firstDelay: "60s" } } } },
};

const peerOf = ({ url }: Served) =>
  new A2aCaller({
    post: (path, body, headers = {}) =>
      fetch(url + path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(body),
      }),
  });

test("a task that ran when its process was killed is failed after the next start, and can be listed as such", async (t) => {
  const cwd = await temporaryFolder(t);
  await writeFile(join(cwd, "service.yaml"), JSON.stringify(MANIFEST));
  const start = () => serve(t, [process.execPath, PENSTOCK, "--port", "0"], { cwd });
  const first = await start();
  const { id } = await peerOf(first).send("assistant", { ...said("x"), ...now });
  await first.interrupt("SIGKILL");
  const peer = peerOf(await start());
  const { status } = await peer.get("assistant", id);
  assert.equal(status.state, "TASK_STATE_FAILED");
  assert.equal(status.message.parts[0].text, "the service stopped while the task was running");
  const { tasks } = await peer.result("assistant", "ListTasks", { status: "TASK_STATE_FAILED" });
  assert.deepEqual(
    tasks.map((task: { id: string }) => task.id),
    [id],
  );
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

const PAY = (folder: string) => `import { appendFileSync } from "node:fs";
  export default { kind: "tool", name: "pay", approval: true, execute(input) {
    appendFileSync(${JSON.stringify(join(folder, "runs"))}, input.amount + "\\n"); return { paid: input.amount }; } };`;

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
    const runs = async () => (await readFile(join(cwd, "runs"), "utf8").catch(() => "")).trim().split("\n");

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
    let ended = await third.get("assistant", two.id);
    while (/WORKING|INPUT/.test(ended.status.state)) ended = await third.get("assistant", two.id);
    // Where the process had taken up the task when it died, that says so; the call ran once at most.
    const paid = (await runs()).filter((line) => line === "2").length;
    assert.ok(paid <= 1);
    if (ended.status.state === "TASK_STATE_COMPLETED") assert.equal(paid, 1);
    else assert.match(ended.status.message.parts[0].text, /the service stopped/);
    assert.equal((await runs()).filter((line) => line === "1").length, 1);
  });
}
