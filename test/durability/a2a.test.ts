/** A process that is killed while a task runs: the next one says of it that it failed. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { A2aCaller, now, said } from "../support/a2a.ts";
import { PENSTOCK, type Served, serve } from "../support/command-line.ts";
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
