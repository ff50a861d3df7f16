/** `server.limits.body` by the class of the route: what generation endpoints take, images above all, and what others do. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { parseManifest } from "../../core/manifest/load.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const MIB = 1024 * 1024;
const GENERATION = ["text", "stream", "chat", "object", "stream-object"];

const imageOf = (bytes: number) => `data:image/png;base64,${Buffer.alloc(bytes, 7).toString("base64")}`;
const showing = (url: string) => [
  {
    role: "user",
    parts: [
      { type: "text", text: "What is it?" },
      { type: "file", mediaType: "image/png", url },
    ],
  },
];
const textOf = (bytes: number) => ({ input: "x".repeat(bytes), schema: { type: "object" } });

for (const transport of TRANSPORTS) {
  describe(`POST bodies over ${transport}`, () => {
    test("every generation endpoint takes 12 MiB, an image of which reaches the model whole, and every other route 1 MiB", async (t) => {
      const { service, upstream } = await serveUpstream(
        t,
        {},
        { server: { transport }, tools: { sum: { use: "add" } } },
      );
      const url = imageOf(9 * MIB);
      const body = JSON.stringify({ input: showing(url), schema: { type: "object" } });
      for (const endpoint of GENERATION) {
        const reply = await service.post(`/agents/assistant/${endpoint}`, body);
        assert.notEqual(reply.status, 413, endpoint);
        await reply.body?.cancel();
        const parts = upstream.requests[0]!.body.messages.flatMap(({ content }: Loose) => content);
        assert.ok(parts.find(({ type }: Loose) => type === "image_url").image_url.url === url, endpoint);
        upstream.requests.length = 0;
      }
      const { status } = await errorOf(
        service.post("/tools/sum/execute", { input: { a: 1, b: 2, c: "x".repeat(MIB) } }),
      );
      assert.equal(status, 413);
    });

    test("POST /agents/:id/text: beyond limits.body.default a body may be long for its texts only", async (t) => {
      const { service } = await serveUpstream(t, {}, { server: { transport } });
      const values = { input: "Hi", options: { context: { values: new Array(700_000).fill(0) } } };
      assert.deepEqual(await errorOf(service.post("/agents/assistant/text", values)), {
        status: 413,
        error: "body has more than 1048576 bytes beside its texts",
      });
      const long = { input: "Hi", options: { context: { note: '\\"'.repeat(2 * MIB) } } };
      await dataOf(service.post("/agents/assistant/text", long));
    });

    test("one size in limits.body is that of every route; by class each has its own", async (t) => {
      const statusOf = async (body: unknown, path: string, content: object) => {
        const service = await startService(
          t,
          manifestWith({}, { server: { transport, limits: { body } }, tools: { sum: { use: "add" } } }),
        );
        return (await service.post(path, content)).status;
      };
      const chat = (bytes: number) => ({
        id: "c",
        messages: [{ role: "user", parts: [{ type: "text", text: "x".repeat(bytes) }] }],
      });
      const CHAT = "/agents/assistant/chat";
      const sum = { input: { a: 1, b: 2 }, context: { note: "x".repeat(3000) } };
      assert.equal(await statusOf("2KiB", CHAT, chat(3000)), 413);
      assert.equal(await statusOf({ generation: "4KiB" }, CHAT, chat(3000)), 200);
      assert.equal(await statusOf({ generation: "4KiB" }, CHAT, chat(5000)), 413);
      assert.equal(await statusOf({ default: "2KiB" }, CHAT, chat(5000)), 200);
      assert.equal(await statusOf({ default: "2KiB" }, "/tools/sum/execute", sum), 413);
      assert.equal(await statusOf({ generation: "2KiB" }, "/tools/sum/execute", sum), 200);
    });

    test("a body that would never fit into limits.uploads is 413, not 503", async (t) => {
      const service = await startService(t, manifestWith({}, { server: { transport, limits: { uploads: "2MiB" } } }));
      const reply = await errorOf(service.post("/agents/assistant/text", textOf(3 * MIB)));
      assert.deepEqual(reply, { status: 413, error: `body is larger than ${2 * MIB} bytes` });
    });
  });
}

test("the default limits of bodies are 14 MiB for generation and 1 MiB for the rest", () => {
  const limits = (body?: unknown) => {
    const text = JSON.stringify(manifestWith({}, body === undefined ? {} : { server: { limits: { body } } }));
    return parseManifest(text, { file: "service.yaml", env: {} }).manifest!.server.limits.body;
  };
  assert.deepEqual(limits(), { default: MIB, generation: 14 * MIB });
  assert.deepEqual(limits({ default: "2MiB" }), { default: 2 * MIB, generation: 14 * MIB });
  assert.deepEqual(limits("3MiB"), 3 * MIB);
});
