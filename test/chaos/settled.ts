/** What must be true once all processes and the database are there again. */
import { setTimeout as sleep } from "node:timers/promises";
import { Pool, request } from "undici";
import { forEach } from "../crash/checker.ts";
import { checkExecution, type Known } from "../crash/workflow-clients.ts";
import { nothingRuns } from "../crash/workflow-runs.ts";
import type { Client, Knowledge } from "./calls.ts";
import type { Cluster } from "./cluster.ts";
import { checkConversation } from "./conversations.ts";
import { checkConversationOfRuns, checkRun } from "./runs.ts";

/** Until everything has ended that dead processes ran. */
const SETTLE_MS = 180_000;

/** Waits until all is well again, and compares what is there with what clients know. */
export async function settled(cluster: Cluster, clients: readonly Client[], knowledge: Knowledge): Promise<void> {
  const { wrong } = knowledge;
  const check = async (work: () => Promise<void>) => work().catch((error) => void wrong.push(String(error.stack)));
  const pools: Pool[] = [];
  for (const { index, served } of cluster.members) {
    if (served === null) wrong.push(`process ${index} is down at the end`);
    else pools.push(new Pool(served.url, { connections: 32, headersTimeout: SETTLE_MS, bodyTimeout: SETTLE_MS }));
  }
  if (pools.length === 0) return;
  for (const { served } of cluster.members) if (served !== null) await check(() => ready(served.url));
  await check(() => nothingRuns(pools[0]!, SETTLE_MS));
  // Each is asked of another process than before and after.
  let turn = 0;
  await forEach(knowledge.executions, (known) =>
    check(() => checkEnd(pools[turn++ % pools.length]!, known, knowledge.cancels)),
  );
  for (const id of knowledge.conversations.keys()) await check(() => checkConversation(clients[0]!, id));
  await forEach(knowledge.runs, (run) => check(() => checkRun(clients[0]!, run)));
  for (const id of new Set(knowledge.runs.map(({ conversation }) => conversation)))
    if (id !== undefined) await check(() => checkConversationOfRuns(clients[0]!, id));
  await Promise.all(pools.map((pool) => pool.destroy()));
}

export async function ready(url: string): Promise<void> {
  for (const end = Date.now() + SETTLE_MS; ; await sleep(100)) {
    const { statusCode, body } = await request(`${url}/readyz`);
    const text = await body.text();
    if (statusCode === 200) return;
    if (Date.now() > end) throw new Error(`/readyz is ${statusCode}: ${text}`);
  }
}

async function checkEnd(pool: Pool, known: Known, cancels: Knowledge["cancels"]): Promise<void> {
  const cancelled = cancels.get(known);
  if (cancelled === undefined) return checkExecution(pool, known);
  const path = `/workflows/slowly/executions/${known.id}/state`;
  const { statusCode, body } = await pool.request({ method: "GET", path });
  const { data } = (await body.json()) as { data?: { status: string } };
  const allowed = cancelled ? ["cancelled"] : ["cancelled", "completed", "gone"];
  const status = statusCode === 404 ? "gone" : data?.status;
  if (!allowed.includes(String(status))) throw new Error(`${known.id} is ${status}, cancel acknowledged: ${cancelled}`);
}
