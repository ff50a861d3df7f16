/** Contract, "Agents": `GET /agents/:id/history` over restarts, with a store that keeps. */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { start } from "../../core/start.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { manifestWith } from "../support/service.ts";

test("GET /agents/:id/history and the conversations are there after an orderly stop, all of them", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "penstock-"));
  const config = join(folder, "service.yaml");
  const manifest = manifestWith({ memory: "default" }, { store: "sqlite:data/test.db", memory: { default: {} } });
  await writeFile(config, JSON.stringify(manifest));
  const serve = () => start({ config, port: 0, env: {}, log: { write: () => undefined } });
  let running = await serve();
  t.after(async () => {
    await running.kill();
    await rm(folder, { recursive: true, force: true });
  });
  const post = (input: string, options: object) =>
    fetch(`${running.url}/agents/assistant/text`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ input, options }),
    });
  for (let index = 0; index < 30; index++) await dataOf(post(`run ${index}`, { conversationId: "c" }));
  // Stopped at once: what ended last has not been written yet.
  await running.stop();
  running = await serve();
  const history = async (query: string) => dataOf(fetch(`${running.url}/agents/assistant/history${query}`));
  const { entries, total } = await history("?limit=100");
  assert.equal(total, 30);
  assert.deepEqual(
    entries.map(({ output, status }: Loose) => [output, status]),
    Array.from({ length: 30 }, (_, index) => [`run ${29 - index}`, "completed"]),
  );
  await dataOf(post("run 30", { conversationId: "c" }));
  assert.equal((await history("?page=0&limit=1")).entries[0].input, "run 30");
  assert.equal((await history("?page=30&limit=1")).entries[0].input, "run 0");
  const { messages } = await dataOf(fetch(`${running.url}/api/memory/conversations/c/messages?limit=100`));
  assert.deepEqual(
    messages.map(({ parts }: Loose) => parts.at(-1).text),
    Array.from({ length: 62 }, (_, index) => `run ${Math.floor(index / 2)}`),
  );
});
