/** A stop with work under way: it may finish within `limits.drain`, and what is left is told so before it is cut. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { EventReader } from "../support/event-reader.ts";
import { inject } from "../support/inject.ts";
import { says, stallsAfter, stallsBeforeHead } from "../support/openai-upstream.ts";
import { soon } from "../support/providers.ts";
import { type Loose, serveUpstream } from "../support/served-upstream.ts";
import { TRANSPORTS } from "../support/transports.ts";

const BODY = { input: "x", schema: { type: "object" } };
const MESSAGE = "the server is stopping";

for (const transport of TRANSPORTS) {
  const serve = (t: Parameters<typeof serveUpstream>[0], drain: string) =>
    serveUpstream(t, {}, { server: { transport, limits: { drain } } });

  describe(`a stop, over ${transport}`, () => {
    const STREAMS = [
      ["stream", { type: "error", error: MESSAGE }],
      ["chat", { type: "error", errorText: MESSAGE }],
      ["stream-object", { type: "error", error: MESSAGE }],
    ] as const;
    for (const [endpoint, event] of STREAMS) {
      test(`POST /agents/:id/${endpoint}: a stream that is open after limits.drain gets an error event, then the end`, async (t) => {
        const { service, upstream } = await serve(t, "100ms");
        upstream.replies(stallsAfter('{"text":"Well'));
        const reader = new EventReader(`${service.url}/agents/assistant/${endpoint}`, BODY);
        await reader.until(() => reader.text.includes("Well"));
        const stopped = service.stop();
        await reader.end();
        assert.deepEqual(reader.events.at(-1), event);
        assert.equal(reader.events.filter(({ type }) => type === "error").length, 1);
        await soon(upstream.requests[0]!.aborted, "the abort");
        await soon(stopped, "the stop");
        await assert.rejects(fetch(`${service.url}/healthz`), "nobody listens any more");
      });
    }

    test("POST /agents/:id/text: a request that waits after limits.drain gets 503 with Retry-After", async (t) => {
      const { service, upstream } = await serve(t, "100ms");
      upstream.replies(stallsBeforeHead());
      const reader = new EventReader(`${service.url}/agents/assistant/text`, BODY);
      const request = await upstream.request(0);
      const stopped = service.stop();
      await reader.end();
      assert.equal(reader.status, 503);
      assert.equal(reader.headers["retry-after"], "1");
      assert.deepEqual(JSON.parse(reader.text), { success: false, error: MESSAGE });
      await soon(request.aborted, "the abort");
      await soon(stopped, "the stop");
    });

    test("POST /agents/:id/stream: a stream that ends within limits.drain ends in order, and so does the stop", async (t) => {
      const { service, upstream } = await serve(t, "20s");
      upstream.replies(says("One two three", { chunks: 5, delay: 40 }));
      const reader = new EventReader(`${service.url}/agents/assistant/stream`, BODY);
      await reader.until(() => reader.text.includes("text-delta"));
      const stopped = service.stop();
      await reader.end();
      await soon(stopped, "the stop");
      const text = reader.events.map(({ delta = "" }: Loose) => delta).join("");
      assert.equal(text, "One two three");
      assert.equal(reader.events.at(-1)!.type, "finish");
    });

    test("GET /readyz is 503 with Retry-After while the service stops, and GET /healthz stays 200", async (t) => {
      const { service, upstream } = await serve(t, "300ms");
      upstream.replies(stallsBeforeHead());
      const reader = new EventReader(`${service.url}/agents/assistant/text`, BODY);
      await upstream.request(0);
      const stopped = service.stop();
      const readiness = await inject(service.dispatch, { path: "/readyz" });
      assert.equal(readiness.status, 503);
      assert.equal(readiness.headers["retry-after"], "1");
      assert.equal((await inject(service.dispatch, { path: "/healthz" })).status, 200);
      reader.leave();
      await soon(stopped, "the stop");
    });
  });
}
