/** A slow reader slows the upstream: what is held for it is bounded by `limits.streamBuffer`, whatever the stream is long. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { EventReader, eventually } from "../support/event-reader.ts";
import { dataOf } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const DELTA = "x".repeat(16 * 1024);
const DELTAS = 3_000;
const MiB = 1024 * 1024;
/** What the buffers of four sockets of the kernel may hold on top of what Penstock does. */
const KERNEL = 32 * MiB;

/** An upstream that writes as fast as it is read, and counts. */
async function endlessUpstream(t: TestContext) {
  const state = {
    deltas: 0,
    get bytes() {
      return this.deltas * DELTA.length;
    },
    done: false,
    aborted: false,
  };
  const chunk = (delta: object, finish: string | null = null) =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
  const server = createServer(async (request, response) => {
    request.resume();
    let proceed: () => void = () => undefined;
    response.on("drain", () => proceed());
    response.on("close", () => {
      state.aborted = !response.writableFinished;
      proceed();
    });
    response.writeHead(200, { "content-type": "text/event-stream" });
    const text = chunk({ role: "assistant", content: DELTA });
    for (; state.deltas < DELTAS && !response.destroyed; state.deltas++) {
      if (response.write(text)) continue;
      await new Promise<void>((resolve) => {
        proceed = resolve;
      });
    }
    response.end(`${chunk({}, "stop")}data: [DONE]\n\n`);
    state.done = !response.destroyed;
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { state, baseURL: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1` };
}

async function serve(t: TestContext, transport: string) {
  const { state, baseURL } = await endlessUpstream(t);
  const up = { use: "openai-compatible", baseURL, retries: 0 };
  const server = { transport, limits: { streamBuffer: "1MiB" } };
  const service = await startService(t, manifestWith({ model: "up/m" }, { providers: { up }, server }));
  return { state, service };
}

/** Waits until the upstream could write nothing for a while. */
async function standstill(state: { deltas: number; done: boolean }): Promise<void> {
  for (let before = -1; before !== state.deltas || state.deltas === 0; ) {
    if (state.done) throw new Error("the upstream was read to its end although nobody reads");
    before = state.deltas;
    await sleep(400);
  }
}

for (const transport of TRANSPORTS) {
  describe(`a slow reader, over ${transport}`, () => {
    for (const endpoint of ["stream", "chat"]) {
      test(`POST /agents/:id/${endpoint}: the upstream stands still while nobody reads, and everything comes when somebody does`, async (t) => {
        const { state, service } = await serve(t, transport);
        const reader = new EventReader(`${service.url}/agents/assistant/${endpoint}`, { input: "x" }, { paused: true });
        reader.forgetful = true;
        await reader.head();
        await standstill(state);
        assert.ok(state.bytes < KERNEL + MiB, `${state.bytes / MiB} MiB were read for a reader that reads nothing`);
        assert.ok(!reader.closed, "a slow reader is not cut");
        reader.resume();
        await reader.end();
        assert.ok(state.done);
        assert.ok(reader.bytes > DELTAS * DELTA.length, `${reader.bytes} bytes`);
        assert.match(reader.text, /"type":"finish","finishReason":"stop"/);
      });
    }

    test("POST /agents/:id/stream: a reader that never reads and then leaves closes the upstream", async (t) => {
      const { state, service } = await serve(t, transport);
      const reader = new EventReader(`${service.url}/agents/assistant/stream`, { input: "x" }, { paused: true });
      await reader.head();
      await standstill(state);
      reader.leave();
      await eventually(() => state.aborted, "the abort");
      await eventually(async () => (await dataOf(service.get("/agents/assistant"))).status === "idle", "idle");
    });
  });
}
