/** Responses in the background: what becomes of them when their process ends. */
import assert from "node:assert/strict";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { PENSTOCK, type Served, serve } from "../support/command-line.ts";
import { says } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { changesOf } from "../support/reload.ts";
import type { Loose } from "../support/served-upstream.ts";
import { serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

const WORK = { model: "assistant", input: "Work", background: true };

const call = async ({ url }: Pick<Served, "url">, path: string, body?: object): Promise<Loose> => {
  const init = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return (await fetch(`${url}/v1/responses${path}`, body === undefined ? {} : init)).json();
};
const comesTo = (at: Pick<Served, "url">, id: string, status: string) =>
  until(async () => (await call(at, `/${id}`)).status === status, `the status ${status}`);

/** Calls `note` once, and then says half an answer and waits while the file is there before it says the rest. */
const WORKING = (hold: string) => `import { existsSync } from "node:fs";
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
export default { kind: "provider", create: () => ({ languageModel: (modelId) => ({
  specificationVersion: "v3", provider: "working", modelId, supportedUrls: {},
  doGenerate: async () => { throw new Error("not used"); },
  async doStream({ prompt, abortSignal }) {
    const isNoted = prompt.some(({ role }) => role === "tool");
    const finish = { type: "finish", usage, finishReason: { unified: isNoted ? "stop" : "tool-calls", raw: undefined } };
    return { stream: new ReadableStream({ async start(to) {
      to.enqueue({ type: "stream-start", warnings: [] });
      if (!isNoted) to.enqueue({ type: "tool-call", toolCallId: "c1", toolName: "note", input: "{}" });
      else {
        to.enqueue({ type: "text-start", id: "t" });
        to.enqueue({ type: "text-delta", id: "t", delta: "Done " });
        while (existsSync(${JSON.stringify(hold)})) await new Promise((resolve) => setTimeout(resolve, 10));
        to.enqueue({ type: "text-delta", id: "t", delta: "at last." });
        to.enqueue({ type: "text-end", id: "t" });
      }
      to.enqueue(finish);
      to.close();
    } }) };
  } }) }) };`;

/** Notes its calls. */
const NOTE = (file: string) => `import { appendFileSync } from "node:fs";
export default { kind: "tool", name: "note", description: "Notes", execute: async () => {
  appendFileSync(${JSON.stringify(file)}, "called\\n");
  return { noted: true };
} };`;

/** A folder with a service whose agent works, and starts of it. */
async function workshop(t: TestContext, agent: object = {}) {
  const cwd = await temporaryFolder(t);
  const [hold, calls] = [join(cwd, "hold"), join(cwd, "calls")];
  const plugins = pluginFolder(t, { "providers/working.mjs": WORKING(hold), "tools/note.mjs": NOTE(calls) });
  const manifest = {
    ...manifestWith({ model: "w/m", tools: ["note"], ...agent }),
    store: "sqlite:responses.db",
    providers: { w: { use: "working" } },
    tools: { note: { use: "note" } },
  };
  await writeFile(join(cwd, "service.yaml"), JSON.stringify(manifest));
  await writeFile(hold, "");
  return {
    start: () => serve(t, [process.execPath, PENSTOCK, "--plugins", plugins, "--port", "0"], { cwd }),
    release: () => rm(hold),
    calls: async () => (await readFile(calls, "utf8")).split("\n").length - 1,
  };
}

/** The events of a response after the one of that number, until one says so or the stream ends. */
async function follow(at: Pick<Served, "url">, id: string, after: number, isLast: (event: Loose) => boolean) {
  const query = after < 0 ? "" : `&starting_after=${after}`;
  const reply = await fetch(`${at.url}/v1/responses/${id}?stream=true${query}`);
  assert.match(reply.headers.get("content-type")!, /^text\/event-stream/);
  const events: Loose[] = [];
  let text = "";
  for await (const chunk of reply.body!.pipeThrough(new TextDecoderStream())) {
    const blocks = (text + chunk).split("\n\n");
    text = blocks.pop()!;
    for (const block of blocks) {
      const data = /^data: ({.*)$/m.exec(block)?.[1];
      if (data === undefined) continue;
      events.push(JSON.parse(data));
      if (isLast(events.at(-1))) return events;
    }
  }
  return events;
}

test("POST /v1/responses in the background: after kill -9 the response goes on, with the results of its tools, and a reader of its stream goes on behind what it has", async (t) => {
  const { start, release, calls } = await workshop(t);
  const first = await start();
  const { id } = await call(first, "", WORK);
  const before = await follow(first, id, -1, ({ type }) => type === "response.output_text.delta");
  assert.equal((await call(first, `/${id}`)).status, "in_progress");
  await first.interrupt("SIGKILL");

  const next = await start();
  const reading = follow(next, id, before.at(-1).sequence_number, () => false);
  await release();
  const after = await reading;
  const numbers = [...before, ...after].map(({ sequence_number }) => sequence_number);
  assert.deepEqual(
    numbers,
    numbers.map((_, index) => index),
  );
  assert.equal(after.at(-1).type, "response.completed");
  const response = await call(next, `/${id}`);
  assert.deepEqual(after.at(-1).response, response);
  assert.deepEqual(
    response.output.map(({ type, status, content }: Loose) => [type, status, content?.[0].text]),
    [
      ["penstock:tool_call", "completed", undefined],
      ["message", "completed", "Done at last."],
    ],
    "the half answer does not count",
  );
  assert.equal(await calls(), 1);
  assert.deepEqual((await follow(next, id, -1, () => false)).slice(0, before.length), before);
  const { status } = await call(next, "", { ...WORK, background: false, previous_response_id: id });
  assert.equal(status, "completed");
});

test("POST /v1/responses in the background: with recovery fail a response that ran when its process was killed is failed after the next start", async (t) => {
  const { start, calls } = await workshop(t, { recovery: "fail" });
  const first = await start();
  const { id } = await call(first, "", WORK);
  await follow(first, id, -1, ({ type }) => type === "response.output_text.delta");
  await first.interrupt("SIGKILL");
  const next = await start();
  await comesTo(next, id, "failed");
  const { error, output } = await call(next, `/${id}/cancel`, {});
  assert.match(error.message, /recovery|stopped|interrupted/);
  assert.deepEqual(
    output.map(({ type, status }: Loose) => [type, status]),
    [
      ["penstock:tool_call", "completed"],
      ["message", "incomplete"],
    ],
  );
  assert.equal(await calls(), 1);
  const { error: refused } = await call(next, "", { ...WORK, previous_response_id: id });
  assert.equal(refused.param, "previous_response_id");
});

test("POST /v1/responses in the background: a service that stops waits for the run, and the response is whole after the next start", async (t) => {
  const cwd = await temporaryFolder(t);
  const store = `sqlite:${join(cwd, "waits.db")}`;
  const { service, upstream } = await serveUpstream(t, {}, { store });
  upstream.replies(says("Done at last.", { delay: 100, chunks: 5 }));
  const { id } = await call(service, "", WORK);
  await upstream.request(0);
  await service.stop();
  const next = await startService(t, manifestWith({}, { store }));
  const response = await call(next, `/${id}`);
  assert.deepEqual([response.status, response.output[0].content[0].text], ["completed", "Done at last."]);
});

test("GET /v1/responses/:id: responses older than history.retention are removed, with all that is stored of them", async (t) => {
  const service = await startService(t, manifestWith());
  const { id } = await call(service, "", { model: "assistant", input: "x" });
  const { responses, store } = service.service;
  const { signal } = new AbortController();
  await responses.rows.removeBefore(Date.now() - 60_000, signal);
  assert.equal((await call(service, `/${id}`)).status, "completed");
  await responses.rows.removeBefore(Date.now() + 60_000, signal);
  assert.equal((await call(service, `/${id}`)).error.code, "not_found");
  for (const prefix of ["rs/", "rt/"]) assert.deepEqual(await store.scan({ prefix, limit: 10 }), []);
});

test("POST /v1/responses in the background: what an agent has begun that a reload removes goes on, and can be read, followed and cancelled", async (t) => {
  const { service, upstream } = await serveUpstream(t, {}, { agents: { leaving: { model: "up/test-model" } } });
  upstream.replies(says("Done at last.", { delay: 100, chunks: 5 }), { steps: [{ stall: true }] });
  const ids: string[] = [];
  for (let count = 0; count < 2; count++) {
    ids.push((await call(service, "", { ...WORK, model: "leaving" })).id);
    await upstream.request(count);
  }
  const up = { use: "openai-compatible", baseURL: upstream.baseURL, apiKey: "test", retries: 0 };
  const changes = await changesOf(service, manifestWith({ model: "up/test-model" }, { providers: { up } }));
  assert.ok(changes.includes("removed agents.leaving"), changes.join());
  const [first, last] = ids as [string, string];
  assert.equal((await follow(service, first, -1, () => false)).at(-1).type, "response.completed");
  const { status, output } = await call(service, `/${first}`);
  assert.deepEqual([status, output[0].content[0].text], ["completed", "Done at last."]);
  assert.equal((await call(service, `/${last}`)).status, "in_progress");
  assert.equal((await call(service, `/${last}/cancel`, {})).status, "cancelled");
  assert.equal((await service.get("/agents/leaving/runs")).status, 404);
});
