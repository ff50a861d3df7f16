/** A real process that is frozen (SIGSTOP), with the times that a service has: others go on with what it ran, and it writes nothing more. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import type { Served } from "../support/command-line.ts";
import { HELD_PROVIDER } from "../support/held-model.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { holdingFolder, twoProcesses } from "../support/two-processes.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
after(() => server?.close());

const { folder, hold, release } = await holdingFolder();
const { url, one, other } = await twoProcesses(server, folder, {
  plugins: { "providers/held.mjs": HELD_PROVIDER },
  providers: { held: { use: "held", folder } },
  memory: { default: {} },
  agents: { keeper: { model: "held/any", durable: true } },
});

const asked = (): number =>
  existsSync(join(folder, "asked")) ? readFileSync(join(folder, "asked"), "utf8").trim().split("\n").length : 0;
const get = (to: Served, path: string): Promise<Loose> => dataOf(fetch(to.url + path));

/** Far below the 30 s after which a process was once taken for gone; it is about 10. */
const LONG_MS = 20_000;

test("POST /agents/:id/text in the background at a process that is frozen: the run goes on at another one about 10 s later, and what wakes up afterwards writes nothing", {
  skip,
}, async (t) => {
  hold("hold why");
  const reply = await fetch(`${one.url}/agents/keeper/text`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      input: "why",
      options: { background: true, memory: { userId: "ada", conversationId: "c" } },
    }),
  });
  const { runId } = ((await reply.json()) as Loose).data;
  await until(() => asked() === 1, "the question");
  one.child.kill("SIGSTOP");
  const frozenAt = performance.now();
  await until(() => asked() === 2, "the question of the one that goes on");
  const took = performance.now() - frozenAt;
  t.diagnostic(`taken over after ${Math.round(took)} ms`);
  assert.ok(took < LONG_MS, `${took}`);
  release("hold why");
  await until(async () => (await get(other, `/agents/keeper/runs/${runId}`)).status === "completed", "the end");
  // The history of the run is written a moment later.
  const history = () => get(other, "/agents/keeper/history");
  await until(async () => (await history()).entries.length === 1, "the history");
  const stored = () =>
    server!.query(
      "SELECT key, value, revision FROM penstock WHERE key !~ '^(xp|td|th|tl|tf|n/t)/' AND key !~ '^s/' ORDER BY key",
      url,
    );
  const before = await stored();
  one.child.kill("SIGCONT");
  await one.says(/taken it for gone/);
  // It is at work again, and says the same as the other.
  assert.equal((await get(one, `/agents/keeper/runs/${runId}`)).status, "completed");
  await until(async () => (await get(one, "/agents")).every(({ status }: Loose) => status !== "running"), "its rest");
  assert.deepEqual(await stored(), before);
  const { messages } = await get(one, "/api/memory/conversations/c/messages?agentId=keeper&userId=ada");
  assert.deepEqual(
    messages.map(({ parts }: Loose) => parts.map(({ text = "" }: Loose) => text).join("")),
    ["why", "half 2 rest 2"],
  );
});
