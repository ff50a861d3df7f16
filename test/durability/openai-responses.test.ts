/** Responses in the background: how they end with their process, on a store of its own and on one that processes share. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { PENSTOCK, type Served, serve } from "../support/command-line.ts";
import { says } from "../support/openai-upstream.ts";
import type { Loose } from "../support/served-upstream.ts";
import { serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

const MANIFEST = {
  ...manifestWith({ model: "demo/slow" }),
  store: "sqlite:responses.db",
  providers: { demo: { use: "scripted", models: { slow: { firstDelay: "60s" } } } },
};
const WORK = { model: "assistant", input: "Work", background: true };

const call = async ({ url }: Pick<Served, "url">, path: string, body?: object): Promise<Loose> => {
  const init = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return (await fetch(`${url}/v1/responses${path}`, body === undefined ? {} : init)).json();
};

test("POST /v1/responses in the background: a response that ran when its process was killed is failed after the next start", async (t) => {
  const cwd = await temporaryFolder(t);
  await writeFile(join(cwd, "service.yaml"), JSON.stringify(MANIFEST));
  const start = () => serve(t, [process.execPath, PENSTOCK, "--port", "0"], { cwd });
  const first = await start();
  const { id } = await call(first, "", WORK);
  assert.equal((await call(first, `/${id}`)).status, "in_progress");
  await first.interrupt("SIGKILL");
  const next = await start();
  for (const response of [await call(next, `/${id}`), await call(next, `/${id}/cancel`, {})]) {
    assert.equal(response.status, "failed");
    assert.equal(response.error.message, "the service stopped while the response was running");
  }
  const { error } = await call(next, "", { ...WORK, previous_response_id: id });
  assert.equal(error.param, "previous_response_id");
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
  await responses.removeBefore(Date.now() - 60_000);
  assert.equal((await call(service, `/${id}`)).status, "completed");
  await responses.removeBefore(Date.now() + 60_000);
  assert.equal((await call(service, `/${id}`)).error.code, "not_found");
  for (const prefix of ["rs/", "rt/"]) assert.deepEqual(await store.scan({ prefix, limit: 10 }), []);
});
