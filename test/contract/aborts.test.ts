/** Contract, "All generation endpoints support cancellation by the client aborting the request": at every stage. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { EventReader, eventually } from "../support/event-reader.ts";
import {
  calls,
  type Reply,
  says,
  stallsAfter,
  stallsBeforeHead,
  stallsBeforeText,
} from "../support/openai-upstream.ts";
import { soon } from "../support/providers.ts";
import { dataOf, serveUpstream } from "../support/served-upstream.ts";
import { TRANSPORTS } from "../support/transports.ts";

const BODY = { input: "x", schema: { type: "object" } };
const ENDPOINTS = ["text", "stream", "chat", "object", "stream-object"];
const STREAMS = ["stream", "chat", "stream-object"];

const STAGES: Record<string, Reply> = {
  "before the model has accepted the call": stallsBeforeHead(),
  "before the first token": stallsBeforeText(),
  "in mid-stream": stallsAfter('{"text":"Well'),
};

/** Waits until the stage is reached, as far as it can be seen from outside. */
async function reach(reader: EventReader, stage: string, endpoint: string): Promise<void> {
  if (stage === "before the model has accepted the call") return;
  // A plain reply shows nothing before its end: the upstream's few bytes have long arrived by then.
  if (!STREAMS.includes(endpoint)) return void (await sleep(50));
  await reader.head();
  if (stage === "in mid-stream") await reader.until(() => reader.text.includes("Well"));
}

/** A server that accepts a call and never answers; `cut` settles when the caller closed its socket. */
async function silentServer(t: TestContext) {
  let called: () => void = () => undefined;
  let left: () => void = () => undefined;
  const begun = new Promise<void>((resolve) => {
    called = resolve;
  });
  const cut = new Promise<void>((resolve) => {
    left = resolve;
  });
  const server = createServer((request) => {
    called();
    request.socket.on("close", () => left());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/slow`, begun, cut };
}

for (const transport of TRANSPORTS) {
  const server = { transport };

  describe(`a client that leaves, over ${transport}`, () => {
    for (const [stage, reply] of Object.entries(STAGES)) {
      for (const endpoint of ENDPOINTS) {
        test(`POST /agents/:id/${endpoint} ${stage}: the upstream's socket is closed`, async (t) => {
          const { service, upstream } = await serveUpstream(t, {}, { server });
          upstream.replies(reply);
          const reader = new EventReader(`${service.url}/agents/assistant/${endpoint}`, BODY);
          const request = await upstream.request(0);
          await reach(reader, stage, endpoint);
          assert.ok(!request.wasAborted);
          reader.leave();
          await soon(request.aborted, "the abort");
          const newest = async () => (await dataOf(service.get("/agents/assistant/history"))).entries[0];
          await eventually(async () => (await newest()).status === "cancelled", "cancelled");
          assert.equal((await dataOf(service.get("/agents/assistant"))).status, "idle");
          assert.equal(upstream.requests.length, 1, "nothing is tried again for nobody");
        });
      }
    }

    for (const endpoint of ["text", "stream", "chat"]) {
      test(`POST /agents/:id/${endpoint} during a tool: the tool's own call is closed, and no step follows`, async (t) => {
        const slow = await silentServer(t);
        const tools = { slow: { description: "Slow", http: { method: "GET", url: slow.url } } };
        const { service, upstream } = await serveUpstream(t, { tools: ["slow"] }, { server, tools });
        upstream.replies(calls([{ name: "slow" }]), says("never"));
        const reader = new EventReader(`${service.url}/agents/assistant/${endpoint}`, BODY);
        await slow.begun;
        reader.leave();
        await soon(slow.cut, "the abort");
        await eventually(async () => (await dataOf(service.get("/agents/assistant"))).status === "idle", "idle");
        assert.equal(upstream.requests.length, 1);
      });
    }

    test("POST /agents/:id/stream during a sub-agent: the upstream of the sub-agent is closed", async (t) => {
      const agents = { writer: { model: "up/small", memory: false } };
      const { service, upstream } = await serveUpstream(t, { subAgents: ["writer"] }, { server, agents });
      upstream.replies(
        calls([{ name: "delegate_task", input: { agentId: "writer", task: "Sing" } }]),
        stallsAfter("La"),
      );
      const reader = new EventReader(`${service.url}/agents/assistant/stream`, BODY);
      await reader.until(() => reader.text.includes('"La"'));
      reader.leave();
      await soon(upstream.requests[1]!.aborted, "the abort");
      await eventually(
        async () =>
          (await dataOf(service.get("/agents"))).every((agent: { status: string }) => agent.status === "idle"),
        "idle",
      );
    });

    test("POST /tools/:name/execute: the tool's own call is closed", async (t) => {
      const slow = await silentServer(t);
      const tools = { slow: { description: "Slow", http: { method: "GET", url: slow.url } } };
      const { service } = await serveUpstream(t, {}, { server, tools });
      const reader = new EventReader(`${service.url}/tools/slow/execute`, { input: {} });
      await slow.begun;
      reader.leave();
      await soon(slow.cut, "the abort");
    });

    test("POST /agents/:id/text between two tries: no other try is made", async (t) => {
      const { service, upstream } = await serveUpstream(t, {}, { server, provider: { retries: 2 } });
      upstream.replies({ status: 503, headers: { "retry-after-ms": "2000" }, json: { error: { message: "later" } } });
      const reader = new EventReader(`${service.url}/agents/assistant/text`, BODY);
      const request = await upstream.request(0);
      await eventually(() => request.completed, "the refusal");
      reader.leave();
      await eventually(async () => (await dataOf(service.get("/agents/assistant"))).status === "idle", "idle");
      await sleep(2_200);
      assert.equal(upstream.requests.length, 1);
    });
  });
}
