/** Push notifications of two real processes over one PostgreSQL: each is told once, and that of a process that is killed by the other. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { A2aCaller, said } from "../support/a2a.ts";
import type { Served } from "../support/command-line.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { checkedClaims, pushReceiver } from "../support/push-receiver.ts";
import { holdingFolder, twoProcesses } from "../support/two-processes.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
const { folder } = await holdingFolder();
const { one, other } = await twoProcesses(server, folder, {
  plugins: {},
  server: { push: { enabled: true, allowPrivate: ["127.0.0.1"], timeout: "60s" } },
  providers: { demo: { use: "scripted" } },
  agents: { desk: { model: "demo/echo", memory: false } },
});

const callerOf = ({ url }: Served) =>
  new A2aCaller({
    post: (path, body, headers = {}) =>
      fetch(url + path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(body),
      }),
  });
const told = (url: string) => ({ configuration: { taskPushNotificationConfig: { url } } });

test("POST /a2a/:id at two processes over one PostgreSQL: a receiver is told once of each task, and both sign with one key", {
  skip,
}, async (t) => {
  const receiver = await pushReceiver(t);
  const ends = await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      callerOf(index % 2 === 0 ? one : other).send("desk", { ...said(`n ${index}`), ...told(receiver.url) }),
    ),
  );
  await receiver.when(20);
  const ids = receiver.told.map(({ body }) => body.task.id);
  assert.deepEqual(ids.toSorted(), ends.map(({ id }: { id: string }) => id).toSorted());
  for (const each of receiver.told.slice(0, 4))
    for (const { url } of [one, other]) await checkedClaims(url, each, receiver.url);
});

test("POST /a2a/:id: what a process was telling when it was killed (kill -9) is told by the other one over PostgreSQL", {
  skip,
}, async (t) => {
  const receiver = await pushReceiver(t, (index) => (index === 0 ? null : 204));
  const { id } = await callerOf(one).send("desk", { ...said("hello"), ...told(receiver.url) });
  await receiver.when(1);
  await one.interrupt("SIGKILL");
  const [first, second] = await receiver.when(2);
  assert.deepEqual([first!.body.task.id, second!.body.task.id], [id, id]);
  await checkedClaims(other.url, first!, receiver.url);
});
