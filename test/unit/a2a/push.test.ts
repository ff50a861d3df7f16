/** Push notifications between two processes on one store, their bounds, and addresses that they never reach. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { newRecord } from "../../../core/a2a/new-task.ts";
import { type PushConfig, readPushConfig } from "../../../core/a2a/push-config.ts";
import { PushDelivery } from "../../../core/a2a/push-delivery.ts";
import { PushSender } from "../../../core/a2a/push-sender.ts";
import { TASK_NOTICES } from "../../../core/a2a/pushes.ts";
import { ended, type TaskRecord } from "../../../core/a2a/task.ts";
import { TaskRows } from "../../../core/a2a/task-rows.ts";
import { NOBODY } from "../../../core/identity/principal.ts";
import { AllowedAddresses } from "../../../core/outbound/allowed-addresses.ts";
import { encodeNumber, PROCESSES, processKey } from "../../../core/storage/keys.ts";
import { Membership } from "../../../core/storage/membership.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";
import { pushReceiver } from "../../support/push-receiver.ts";
import { recordingLogger } from "../../support/storage.ts";

/** A store that other processes use too. */
const shared = (): Store => ({ ...createMemoryStore(), kind: "postgres" });

const SETTINGS = {
  enabled: true,
  perTask: 5,
  timeout: 60_000,
  retry: 60_000,
  max: 10_000,
  allowPrivate: ["127.0.0.1"],
};

async function processOn(t: TestContext, store: Store, more: Partial<typeof SETTINGS> = {}) {
  const { logger, lines } = recordingLogger();
  const membership = new Membership(store, { logger, times: { heartbeatInterval: 20, leaseTimeout: 60_000 } });
  await membership.start();
  t.after(() => membership.release());
  const rows = new TaskRows(store, true, membership);
  const settings = { ...SETTINGS, ...more };
  const sender = new PushSender(rows, { settings: () => settings, whole: async ({ task }) => task, logger });
  rows.onEvent = () => sender.hurry();
  t.after(() => sender.close());
  return { rows, sender, membership, lines };
}

let count = 0;

async function beginTask(rows: TaskRows, url: string, user = "ada"): Promise<TaskRecord> {
  const message = { messageId: `m-${++count}`, role: "ROLE_USER", parts: [{ text: "x" }] } as const;
  const fresh = {
    message: { ...message, parts: [...message.parts] },
    contextId: "c",
    context: undefined,
  };
  const principal = { userId: user, isolated: true };
  const record = newRecord("desk", fresh, principal, { user: null, caller: NOBODY });
  const push: PushConfig = { id: "one", url, version: "1.0", issuer: "http://here/a2a/desk" };
  await rows.create(record, push);
  return record;
}

async function endTask(rows: TaskRows, record: TaskRecord): Promise<void> {
  const { revision } = (await rows.read("desk", record.task.id))!;
  await rows.change(record, ended(record, { state: "TASK_STATE_COMPLETED" }), revision);
}

async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isSo())) await new Promise((resolve) => setTimeout(resolve, 5));
}

const isTold = async (store: Store) => (await store.scan({ prefix: TASK_NOTICES, limit: 1 })).length === 0;

/** The store as one process has it, which counts how often that one looks at the others. */
function countedLooks(store: Store) {
  let looks = 0;
  const scan: Store["scan"] = (range) => {
    if (range.prefix === PROCESSES) looks++;
    return store.scan(range);
  };
  const more = (count: number) => {
    const wanted = looks + count;
    return until(() => looks >= wanted);
  };
  return { store: { ...store, scan }, more };
}

describe("two processes on one store", () => {
  test("the end of a task is told once where two processes look for what is due at the same time", async (t) => {
    const store = shared();
    const receiver = await pushReceiver(t);
    const [one, two] = [await processOn(t, store), await processOn(t, store)];
    const records = await Promise.all(Array.from({ length: 10 }, () => beginTask(one.rows, receiver.url)));
    await Promise.all(records.map((record) => endTask(one.rows, record)));
    await Promise.all([one.sender.start(), two.sender.start()]);
    await until(() => isTold(store));
    assert.equal(receiver.told.length, 10);
  });

  test("what a process was telling when it was lost is told by another one", async (t) => {
    const store = shared();
    const receiver = await pushReceiver(t, (index) => (index === 0 ? null : 204));
    const looks = countedLooks(store);
    const [one, two] = [await processOn(t, looks.store), await processOn(t, store)];
    // The first must have seen the second, or it cannot miss it: the second look begins once the first one is over.
    await looks.more(2);
    await Promise.all([one.sender.start(), two.sender.start()]);
    await endTask(one.rows, await beginTask(one.rows, receiver.url));
    await receiver.when(1);
    // Whichever of the two has claimed it.
    const [notice] = await store.scan({ prefix: TASK_NOTICES, limit: 1 });
    const [, , holder] = JSON.parse(notice!.value) as string[];
    assert.ok([one, two].some(({ membership }) => membership.name === holder));
    await store.commit({ delete: [processKey(holder!)] });
    await receiver.when(2);
    await until(() => isTold(store));
  });
});

test("a receiver that does not answer holds no more than four tasks of its user, and other users are told meanwhile", async (t) => {
  const store = shared();
  const silent = await pushReceiver(t, () => null);
  const receiver = await pushReceiver(t);
  const { rows, sender } = await processOn(t, store);
  await sender.start();
  for (let index = 0; index < 8; index++) await endTask(rows, await beginTask(rows, silent.url));
  await silent.when(4);
  await endTask(rows, await beginTask(rows, receiver.url, "bob"));
  await receiver.when(1);
  assert.equal(silent.told.length, 4);
});

test("the many tasks of a user that wait for a receiver that does not answer keep no other user's from being told", async (t) => {
  const store = shared();
  const silent = await pushReceiver(t, () => null);
  const receiver = await pushReceiver(t);
  const { rows, sender } = await processOn(t, store);
  await sender.start();
  for (let index = 0; index < 4; index++) await endTask(rows, await beginTask(rows, silent.url));
  await silent.when(4);
  const due = Date.now();
  const waiting = Array.from({ length: 10_000 }, (_, index) => [
    `${TASK_NOTICES}${encodeNumber(due)}/t${index}`,
    JSON.stringify(["desk", "ada"]),
  ]) as [string, string][];
  await store.commit({ put: waiting });
  await endTask(rows, await beginTask(rows, receiver.url, "bob"));
  await receiver.when(1);
  assert.equal(silent.told.length, 4);
});

test("a receiver that keeps its connections open holds none: each notification has a connection of its own", async (t) => {
  const store = shared();
  const receiver = await pushReceiver(t);
  const { rows, sender } = await processOn(t, store);
  await sender.start();
  for (let index = 0; index < 3; index++) await endTask(rows, await beginTask(rows, receiver.url));
  await receiver.when(3);
  await until(async () => (await receiver.connections()) === 0);
});

test("a server.push.timeout that is longer than Node's timers go is none at once", async (t) => {
  const store = shared();
  const receiver = await pushReceiver(t);
  const { rows, sender, lines } = await processOn(t, store, { timeout: 10 ** 10, retry: 1 });
  await sender.start();
  await endTask(rows, await beginTask(rows, receiver.url));
  await until(() => isTold(store));
  assert.equal(receiver.told.length, 1);
  assert.deepEqual(lines, []);
});

test("a try that the end of the service cuts short does not count", async (t) => {
  const store = shared();
  const receiver = await pushReceiver(t, () => null);
  const { rows, sender } = await processOn(t, store);
  await sender.start();
  const record = await beginTask(rows, receiver.url);
  await endTask(rows, record);
  await receiver.when(1);
  await sender.close();
  const { claim, pushes } = (await rows.pushes.read(record.task.id))!.record;
  assert.equal(claim, undefined);
  assert.equal(pushes[0]!.pending!.tries, 0);
});

test("a notification that is never taken is given up once server.push.retry is over, and the log names the host alone", async (t) => {
  const store = shared();
  const receiver = await pushReceiver(t, () => 500);
  const { rows, sender, lines } = await processOn(t, store, { retry: 1 });
  await sender.start();
  await endTask(rows, await beginTask(rows, receiver.url));
  await until(() => isTold(store));
  assert.equal(receiver.told.length, 1);
  const { host } = new URL(receiver.url);
  assert.deepEqual(lines, [`warn: a push notification to ${host} was given up: it answers 500`]);
  assert.doesNotMatch(JSON.stringify(lines), /key=k/);
});

test("the first notification that a receiver does not take is a warning that names the host alone, further ones are not until it has taken one", async (t) => {
  const store = shared();
  const answers = [500, 500, 204, 500, 204];
  const receiver = await pushReceiver(t, (index) => answers[index] ?? 204);
  const { rows, sender, lines } = await processOn(t, store);
  await sender.start();
  const { host } = new URL(receiver.url);
  const failed = `warn: a push notification was not taken by ${host}: it answers 500`;
  const works = `info: push notifications are taken by ${host} again`;
  await endTask(rows, await beginTask(rows, receiver.url));
  await until(() => isTold(store));
  assert.deepEqual(lines, [failed, works]);
  await endTask(rows, await beginTask(rows, receiver.url));
  await until(() => isTold(store));
  assert.deepEqual(lines, [failed, works, failed, works]);
  assert.equal(receiver.told.length, answers.length);
  assert.doesNotMatch(JSON.stringify(lines), /key=k/);
});

test("a name that leads to a private address is not told, whatever it was when it was configured", async (t) => {
  const receiver = await pushReceiver(t);
  const url = receiver.url.replace("127.0.0.1", "localhost");
  const rows = new TaskRows(createMemoryStore(), true);
  const { task } = await beginTask(rows, url);
  const delivery = new PushDelivery(rows.store, () => new AllowedAddresses([]));
  t.after(() => delivery.close());
  const config: PushConfig = { id: "one", url, version: "1.0", issuer: "http://here" };
  const send = (config: PushConfig) => delivery.send({ config, task, max: 10_000 }, AbortSignal.timeout(30_000));
  await assert.rejects(send(config), /localhost is at a private address/);
  await assert.rejects(send({ ...config, url: receiver.url }), /private address/);
  assert.equal(receiver.told.length, 0);
});

test("a name that is always this machine is refused when it is configured, unless its name or an address of it is allowed", () => {
  const read = (url: string, allowed: string[]) =>
    readPushConfig(
      { tenant: "", taskId: "t", id: "", token: "", authentication: undefined, url },
      {
        version: "1.0",
        issuer: "http://here",
        task: "t",
        path: "params.url",
        addresses: new AllowedAddresses(allowed),
      },
    );
  for (const url of ["http://localhost:9000/", "http://localhost./", "http://hook.localhost/", "http://127.0.0.1/"])
    assert.throws(() => read(url, ["10.0.0.0/8"]), /params\.url must not be at a private address/, url);
  for (const allowed of ["localhost", "127.0.0.1", "127.0.0.0/8", "::1"])
    assert.equal(read("http://localhost:9000/", [allowed]).id, "t", allowed);
  assert.equal(read("http://client.example/", []).id, "t");
  assert.equal(read("http://127.0.0.5/", ["127.0.0.5"]).id, "t");
});

test("a task that is deleted leaves no row of those who were told of it", async (t) => {
  const store = shared();
  const { rows } = await processOn(t, store);
  const record = await beginTask(rows, "http://127.0.0.1:1/");
  await endTask(rows, record);
  assert.equal((await rows.pushes.read(record.task.id))?.record.event, 1);
  await rows.delete("desk", await store.scan({ prefix: "a2i/", limit: 10 }));
  for (const prefix of ["a2c/", TASK_NOTICES]) assert.deepEqual(await store.scan({ prefix, limit: 1 }), []);
});

test("rows of those who are told of a task are as earlier releases have written them", async (t) => {
  const store = shared();
  const { rows } = await processOn(t, store);
  const record = await beginTask(rows, "http://127.0.0.1:1/");
  const { id } = record.task;
  const written = async () =>
    (await store.scan({ prefix: "a2", limit: 20 })).flatMap(({ key, value }) =>
      /^a2[cn]/.test(key) ? [[key, JSON.parse(value)]] : [],
    );
  const config = { id: "one", url: "http://127.0.0.1:1/", version: "1.0", issuer: "http://here/a2a/desk" };
  const head = { agent: "desk", owner: "ada" };
  assert.deepEqual(await written(), [[`a2c/${id}`, { ...head, event: 0, pushes: [{ config }] }]]);
  await endTask(rows, record);
  const { due } = (await rows.pushes.read(id))!.record.pushes[0]!.pending!;
  const told = {
    ...head,
    event: 1,
    pushes: [{ config, pending: { event: 1, since: due, tries: 0, due } }],
  };
  assert.deepEqual(await written(), [
    [`a2c/${id}`, told],
    [`a2n/${encodeNumber(due)}/${id}`, ["desk", "ada"]],
  ]);
  const claim = { process: "p", until: due + 1_000 };
  await rows.pushes.change(id, (before) => ({ ...before, claim }));
  assert.deepEqual(await written(), [
    [`a2c/${id}`, { ...told, claim }],
    [`a2n/${encodeNumber(claim.until)}/${id}`, ["desk", "ada", "p"]],
  ]);
  await rows.pushes.change(id, (before) => ({ ...before, pushes: [] }));
  assert.deepEqual(await written(), []);
});
