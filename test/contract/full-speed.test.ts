/** Models that send without pause and without end: what one run may take of the event loop, and of its model while nobody reads. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { pluginFolder } from "../support/plugin-folder.ts";
import { RawClient } from "../support/raw-http.ts";
import { manifestWith, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const RUNS = 20;
/** How long each run is watched for: well below what the sockets of the kernel take. */
const PARTS_OF_RUN = 3_000;
/** Parts of one run in the turn that begins it, when all of them begin together: a slice, and what is read ahead. */
const FIRST_SLICE = 800;
const MiB = 1024 * 1024;

interface Flood {
  /** Parts and characters that all models were asked for, and the characters of each call. */
  parts: number;
  calls: { characters: number }[];
  /** The models say that they are done. */
  stop: boolean;
}
const flood: Flood = { parts: 0, calls: [], stop: false };
(globalThis as unknown as { penstockFlood: Flood }).penstockFlood = flood;

/** `batches/LENGTH` and `stream/LENGTH`: deltas of so many characters, by the two ways in which a provider may give them. */
const PROVIDER = `
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const END = [{ type: "text-end", id: "1" }, { type: "finish", finishReason: { unified: "stop" }, usage }];
export default { kind: "provider", name: "flood", create: () => ({ retries: 0, languageModel: (id) => {
  const [form, length] = id.split("-");
  const delta = { type: "text-delta", id: "1", delta: "x".repeat(Number(length)) };
  const flood = globalThis.penstockFlood;
  return { specificationVersion: "v3", provider: "flood", modelId: id, supportedUrls: {}, doStream: async () => {
    const call = { characters: 0 };
    flood.calls.push(call);
    let begun = false;
    const take = (count) => {
      if (!begun) { begun = true; return [{ type: "text-start", id: "1" }]; }
      if (flood.stop) return END;
      flood.parts += count;
      call.characters += count * delta.delta.length;
      return Array(count).fill(delta);
    };
    let ended = false;
    const next = (count) => {
      if (ended) return null;
      const parts = take(count);
      ended = parts === END;
      return parts;
    };
    if (form === "batches") return { batches: { next: () => next(32), cancel() {} } };
    return { stream: new ReadableStream({ pull(controller) {
      const parts = next(1);
      if (parts === null) controller.close();
      else for (const part of parts) controller.enqueue(part);
    } }, { highWaterMark: 0 }) };
  } };
} }) };`;

async function serve(t: TestContext, transport: string, model: string) {
  Object.assign(flood, { parts: 0, calls: [], stop: false });
  const manifest = manifestWith(
    { model: `up/${model}` },
    { providers: { up: { use: "flood" } }, server: { transport }, logs: { level: "warn" } },
  );
  const service = await startService(t, manifest, { plugins: [pluginFolder(t, { "providers/flood.mjs": PROVIDER })] });
  t.after(() => {
    flood.stop = true;
  });
  return service;
}

async function startRun(t: TestContext, port: number, endpoint = "stream"): Promise<RawClient> {
  const client = await RawClient.open(port);
  t.after(() => client.close());
  client.socket.pause();
  const body = JSON.stringify({ input: "x" });
  const head = [`POST /agents/assistant/${endpoint} HTTP/1.1`, "Host: localhost", "Content-Type: application/json"];
  await client.send(`${[...head, `Content-Length: ${body.length}`].join("\r\n")}\r\n\r\n${body}`);
  return client;
}

/** Until the models were asked for nothing for a while. */
async function standstill(): Promise<void> {
  for (let before = -1; before !== flood.parts || flood.parts === 0; ) {
    before = flood.parts;
    await sleep(300);
  }
}

for (const transport of TRANSPORTS) {
  describe(`models at full speed, over ${transport}`, () => {
    for (const model of ["batches-100", "stream-100"]) {
      test(`POST /agents/:id/stream: ${RUNS} clients that do not read leave every turn of the event loop to others (${model})`, async (t) => {
        const service = await serve(t, transport, model);
        let largest = 0;
        let turns = 0;
        let counting = true;
        let before = 0;
        const turn = () => {
          largest = Math.max(largest, flood.parts - before);
          before = flood.parts;
          turns++;
          if (counting) setImmediate(turn);
        };
        setImmediate(turn);
        let answered = 0;
        const asking = (async () => {
          while (counting) {
            const reply = await service.get("/agents");
            assert.equal(reply.status, 200);
            await reply.text();
            answered++;
          }
        })();
        await Promise.all(Array.from({ length: RUNS }, () => startRun(t, service.port)));
        while (flood.parts < RUNS * PARTS_OF_RUN) await new Promise(setImmediate);
        counting = false;
        flood.stop = true;
        await asking;
        assert.equal(flood.calls.length, RUNS);
        assert.ok(answered >= 5, `${answered} other requests were answered in between`);
        assert.ok(largest <= RUNS * FIRST_SLICE, `${largest} parts in one of ${turns} turns`);
      });
    }

    test("POST /agents/:id/text: a model that does not end leaves turns to others", async (t) => {
      const service = await serve(t, transport, "batches-10");
      const run = await startRun(t, service.port, "text");
      while (flood.calls.length === 0) await new Promise(setImmediate);
      for (let count = 0; count < 5; count++) assert.equal((await service.get("/agents")).status, 200);
      flood.stop = true;
      run.socket.resume();
      assert.equal((await run.reply()).status, 200);
    });

    test("POST /agents/:id/stream: what a model is asked for while nobody reads does not grow with its parts", async (t) => {
      const asked: number[] = [];
      for (const model of ["batches-1000", "stream-1000", "stream-50000"]) {
        const service = await serve(t, transport, model);
        const client = await startRun(t, service.port);
        await standstill();
        asked.push(flood.calls[0]!.characters);
        client.close();
        await service.kill();
      }
      // The buffers of the kernel are the same for all.
      const [least, most] = [Math.min(...asked), Math.max(...asked)];
      assert.ok(most - least < 2 * MiB, `${asked.join(", ")} characters`);
    });
  });
}
