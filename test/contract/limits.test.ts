/** Contract, "Limits": the port, the time until a reply, connections, and what a body may be. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { parseManifest } from "../../core/manifest/load.ts";
import { EventReader, eventually } from "../support/event-reader.ts";
import { stallsBeforeHead } from "../support/openai-upstream.ts";
import { soon } from "../support/providers.ts";
import { RawClient } from "../support/raw-http.ts";
import { serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const BODY = { input: "x", schema: { type: "object" } };

test("the default port is 3141 on the loopback, and the variable PORT is not read", () => {
  const { manifest } = parseManifest(JSON.stringify(manifestWith()), { file: "service.yaml", env: { PORT: "9999" } });
  assert.equal(manifest!.server.port, 3141);
  assert.equal(manifest!.server.host, "127.0.0.1");
  // biome-ignore lint/suspicious/noTemplateCurlyInString: the manifest's own syntax
  const written = manifestWith({}, { server: { port: "${PORT}" } });
  const asked = parseManifest(JSON.stringify(written), { file: "service.yaml", env: { PORT: "9999" } });
  assert.equal(asked.manifest!.server.port, 9999, "unless the manifest says so");
});

test("the default limits are those that the manifest's grammar names", () => {
  const { manifest } = parseManifest(JSON.stringify(manifestWith()), { file: "service.yaml", env: {} });
  assert.deepEqual(manifest!.server.limits, {
    body: { default: 1024 * 1024, generation: 14 * 1024 * 1024 },
    uploads: 256 * 1024 * 1024,
    vectors: 192 * 1024 * 1024,
    executions: 10_000,
    userExecutions: 2_500,
    execution: 64 * 1024 * 1024,
    userTasks: 100,
    approvals: 100,
    request: 120_000,
    heartbeat: 15_000,
    streamBuffer: 1024 * 1024,
    stall: 120_000,
    drain: 30_000,
    connections: 10_000,
    socketMessage: 64 * 1024,
  });
});

for (const transport of TRANSPORTS) {
  describe(`server.limits over ${transport}`, () => {
    for (const endpoint of ["text", "object", "stream", "chat", "stream-object"]) {
      test(`POST /agents/:id/${endpoint}: no reply within limits.request is 503 with Retry-After, and the upstream is closed`, async (t) => {
        const { service, upstream } = await serveUpstream(
          t,
          {},
          { server: { transport, limits: { request: "300ms" } } },
        );
        upstream.replies(stallsBeforeHead());
        const reply = await service.post(`/agents/assistant/${endpoint}`, BODY);
        assert.equal(reply.status, 503);
        assert.equal(reply.headers.get("x-error-code"), "unavailable");
        assert.equal(reply.headers.get("retry-after"), "1");
        assert.deepEqual(await reply.json(), { success: false, error: "the request took longer than 0.3 s" });
        await soon(upstream.requests[0]!.aborted, "the abort");
      });
    }

    test("POST /agents/:id/stream: limits.request ends with the headers: a stream may last longer", async (t) => {
      const { service, upstream } = await serveUpstream(t, {}, { server: { transport, limits: { request: "300ms" } } });
      upstream.replies({
        steps: [{ text: "One" }, { wait: 900 }, { text: " two" }, { finish: "stop" }, { done: true }],
      });
      const reader = new EventReader(`${service.url}/agents/assistant/stream`, BODY);
      await reader.end();
      assert.equal(reader.status, 200);
      assert.match(reader.text, /" two"/);
      assert.equal(reader.events.at(-1)!.type, "finish");
    });

    test("connections beyond limits.connections are closed, and taken again when others have left", async (t) => {
      const service = await startService(t, manifestWith({}, { server: { transport, limits: { connections: 2 } } }));
      const request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
      const two = [await RawClient.open(service.port), await RawClient.open(service.port)];
      for (const client of two) {
        await client.send(request);
        assert.equal((await client.reply()).status, 200);
      }
      const third = await RawClient.open(service.port);
      await third.send(request);
      await soon(third.closed, "the refusal");
      assert.equal(third.received, "");
      two[0]!.close();
      let served = false;
      await eventually(async () => {
        const client = await RawClient.open(service.port);
        await client.send(request);
        await client.until((received) => received !== "");
        served = client.received.startsWith("HTTP/1.1 200");
        client.close();
        return served;
      }, "a free place");
      two[1]!.close();
    });
  });
}

test("a body of exactly limits.body is read, one byte more is 413, with a stated length or without", async (t) => {
  const service = await startService(t, manifestWith({}, { server: { transport: "node", limits: { body: "1KiB" } } }));
  const bodyOf = (bytes: number) => `{"input":"${"x".repeat(bytes - 12)}"}`;
  assert.equal(Buffer.byteLength(bodyOf(1024)), 1024);
  const status = async (bytes: number) => (await service.post("/agents/assistant/text", bodyOf(bytes))).status;
  assert.deepEqual([await status(1024), await status(1025)], [200, 413]);
  const chunked = async (bytes: number) => {
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(Buffer.from(bodyOf(bytes)));
        controller.close();
      },
    });
    const init = { method: "POST", headers: { "content-type": "application/json" }, body, duplex: "half" };
    return (await fetch(`${service.url}/agents/assistant/text`, init as RequestInit)).status;
  };
  assert.deepEqual([await chunked(1024), await chunked(1025)], [200, 413]);
});
