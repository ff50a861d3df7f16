/**
 * `kill -9` while 64 clients begin runs of an agent that are kept, each with three tool calls. A real process with a SQLite file; the
 * signal comes at a moment chosen by chance. Three rounds, or `PENSTOCK_CRASH_ROUNDS` of them (`npm run test:crash`: one hundred).
 */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import { silent } from "../support/agents.ts";
import { PENSTOCK, serve } from "../support/command-line.ts";
import { until } from "../support/probe.ts";

const ROUNDS = Number(process.env.PENSTOCK_CRASH_ROUNDS ?? 3);
const CLIENTS = 64;
/** Milliseconds of load before the signal, at least and at most. */
const LOAD = [100, 900] as const;

const CHARGE = `import { appendFileSync } from "node:fs";
export default { kind: "tool", description: "Charges", parameters: { type: "object" },
  execute: async (input, { idempotencyKey }) => {
    appendFileSync("charges.log", idempotencyKey + " " + input.run + "/" + input.n + "\\n");
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
    return { charged: input.n };
  } };`;

/** Asks for three charges, one after the other, and then tells what it was answered. */
const MODEL = `import { randomUUID } from "node:crypto";
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
export default { kind: "provider", create: () => ({ languageModel: (modelId) => ({
  specificationVersion: "v3", provider: "charging", modelId, supportedUrls: {},
  doGenerate: async () => { throw new Error("not used"); },
  async doStream({ prompt }) {
    const run = prompt.find(({ role }) => role === "user").content[0].text;
    const n = prompt.filter(({ role }) => role === "tool").flatMap(({ content }) => content).length + 1;
    const text = (delta) => ({ type: "text-delta", id: "t", delta });
    const said = [{ type: "text-start", id: "t" }, text("step "), text(String(n)), { type: "text-end", id: "t" }];
    if (n <= 3) said.push({ type: "tool-call", toolCallId: randomUUID(), toolName: "charge", input: JSON.stringify({ run, n }) });
    const finishReason = { unified: n > 3 ? "stop" : "tool-calls", raw: undefined };
    const parts = [{ type: "stream-start", warnings: [] }, ...said, { type: "finish", usage, finishReason }];
    return { stream: new ReadableStream({ async start(to) {
      for (const part of parts) { await new Promise((resolve) => setTimeout(resolve, Math.random() * 10)); to.enqueue(part); }
      to.close();
    } }) };
  } }) }) };`;

const MANIFEST = `store: sqlite:data/penstock.db
name: Crash
version: 1.0.0
logs: { level: warn }
plugins: [plugins]
providers: { fake: { use: charging } }
tools: { charge: { use: charge } }
memory: { default: {} }
agents:
  a: { model: fake/m, tools: [charge], maxSteps: 8, durable: true }
`;

/** What one client knows of a run of which it was told. */
interface Begun {
  readonly id: string;
  /** Events that it has read so far. */
  readonly parts: { id: number; type: string }[];
}

/** Without what a step had said before it was asked for again. */
function thatCount(types: readonly string[]): string[] {
  const counted: string[] = [];
  for (const type of types) {
    if (type === "step-restart")
      counted.length = counted.findLastIndex((each) => /^st(art-step|ep-restart)$/.test(each));
    counted.push(type);
  }
  return counted;
}

let ids = 0;

const headers = { "content-type": "application/json" };

/**
 * Begins runs one after the other and reads each of them until the process is gone.
 *
 * @param asked ids of all runs that were asked for: it is not told of those whose reply was lost
 */
async function work(
  url: string,
  client: number,
  begun: Begun[],
  asked: Set<string>,
  isOver: () => boolean,
): Promise<void> {
  while (!isOver()) {
    const id = `${client}-${++ids}`;
    asked.add(id);
    const memory = { userId: "u", conversationId: id };
    const body = JSON.stringify({ input: id, options: { runId: id, memory, background: true } });
    try {
      const reply = await fetch(`${url}/agents/a/text`, { method: "POST", headers, body });
      assert.equal(reply.status, 202, await reply.text());
      const run: Begun = { id, parts: [] };
      begun.push(run);
      await read(url, run);
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      return;
    }
  }
}

/** Reads on behind the last event that was read. */
async function read(url: string, { id, parts }: Begun): Promise<void> {
  const last = { "last-event-id": String(parts.at(-1)?.id ?? 0) };
  const reply = await fetch(`${url}/agents/a/runs/${id}/stream`, { headers: last });
  assert.equal(reply.status, 200);
  let text = "";
  for await (const chunk of reply.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    const whole = text.lastIndexOf("\n\n") + 2;
    if (whole === 1) continue;
    for (const [, number, data] of text.slice(0, whole).matchAll(/id: (\d+)\ndata: (.*)\n/g))
      parts.push({ id: Number(number), type: JSON.parse(data!).type });
    text = text.slice(whole);
  }
}

test(`no kept run is lost, stuck or charged twice after kill -9: ${ROUNDS} rounds`, async (t: TestContext) => {
  const folder = mkdtempSync(join(tmpdir(), "penstock-crash-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  for (const kind of ["tools", "providers"]) mkdirSync(join(folder, "plugins", kind), { recursive: true });
  writeFileSync(join(folder, "plugins/tools/charge.mjs"), CHARGE);
  writeFileSync(join(folder, "plugins/providers/charging.mjs"), MODEL);
  const config = join(folder, "service.yaml");
  writeFileSync(config, MANIFEST);
  const file = join(folder, "data", "penstock.db");
  const boot = () =>
    serve(t, [process.execPath, PENSTOCK, "serve", "--config", config, "--port", "0"], { cwd: folder });
  const charges = () => {
    const log = join(folder, "charges.log");
    return existsSync(log) ? readFileSync(log, "utf8").trim().split("\n") : [];
  };
  /** Calls whose results are on record. */
  const recorded = async () => {
    const store = await openSqliteStore({ file, where: file, synchronous: "normal", logger: silent });
    const ids = new Set<string>();
    for (let after: string | undefined; ; ) {
      const rows = await store.scan({ prefix: "x", limit: 500, ...(after !== undefined && { after }) });
      for (const { value } of rows)
        for (const [, id] of value.matchAll(/\["result",\d+,\{"type":"tool-result","toolCallId":"([^"]+)"/g))
          ids.add(id!);
      if (rows.length === 0) break;
      after = rows.at(-1)!.key;
    }
    await store.close();
    return ids;
  };

  const clients: Begun[][] = Array.from({ length: CLIENTS }, () => []);
  const asked = new Set<string>();
  /** Those that were looked at after the round that began them. */
  const seen = new Set<Begun>();
  let cutOff = 0;
  let untold = 0;
  for (let round = 1; round <= ROUNDS; round++) {
    const dying = await boot();
    let over = false;
    const working = clients.map((begun, client) => work(dying.url, client, begun, asked, () => over));
    await Promise.race([...working, sleep(LOAD[0] + Math.random() * (LOAD[1] - LOAD[0]))]);
    await until(() => clients.some((begun) => begun.length > 1), "a run that has ended");
    over = true;
    await dying.interrupt("SIGKILL");
    await Promise.all(working);
    const known = await recorded();
    const before = charges().length;

    const living = await boot();
    // In the last round all of them once more.
    const looked = clients.flat().filter((run) => round === ROUNDS || !seen.has(run));
    for (const run of looked) {
      seen.add(run);
      const isWhole = run.parts.at(-1)?.type === "finish";
      if (!isWhole) cutOff++;
      if (!isWhole) await read(living.url, run);
      const reply = await fetch(`${living.url}/agents/a/runs/${run.id}`);
      const { data } = (await reply.json()) as { data: { status: string; output: string } };
      assert.equal(data.status, "completed", `run ${run.id}`);
      assert.equal(data.output, "step 4");
      assert.deepEqual(
        run.parts.map(({ id }) => id),
        run.parts.map((_, index) => index + 1),
        `the reader of ${run.id} saw each part once and in order`,
      );
      const types = thatCount(run.parts.map(({ type }) => type));
      assert.equal(types.filter((type) => type === "tool-result").length, 3, types.join());
      assert.equal(types.filter((type) => type === "finish-step").length, 4, types.join());
    }
    const told = new Set(clients.flat().map(({ id }) => id));
    for (const id of asked) {
      if (told.has(id)) continue;
      asked.delete(id);
      const reply = await fetch(`${living.url}/agents/a/runs/${id}`);
      if (reply.status === 404) continue;
      untold++;
      const run: Begun = { id, parts: [] };
      await read(living.url, run);
      assert.equal(run.parts.at(-1)?.type, "finish", `run ${id}, whose reply was lost, goes on`);
    }
    for (const line of charges().slice(before)) {
      const call = line.split(" ")[0]!.split(":").at(-1)!;
      assert.ok(!known.has(call), `the result of ${line} was on record, and it was asked for again`);
    }
    await living.interrupt("SIGKILL");
  }
  const [calls, keys] = [new Map<string, string>(), new Map<string, string>()];
  for (const line of charges()) {
    const [key, call] = line.split(" ") as [string, string];
    assert.equal(calls.get(key) ?? call, call, `${key} was used by two calls`);
    assert.equal(keys.get(call) ?? key, key, `${call} had two keys`);
    calls.set(key, call);
    keys.set(call, key);
  }
  t.diagnostic(`${clients.flat().length} runs, ${cutOff} of them cut off, and ${untold} whose reply was lost`);
  assert.ok(cutOff > 0, "runs were cut off");
});
