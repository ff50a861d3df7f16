/** Contract, "SSE framing": headers, ids, what comes last, errors before and after the first byte, silence and waiting. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { validators } from "../../generated/all-validators.js";
import { EventReader } from "../support/event-reader.ts";
import { FIXTURES } from "../support/fixtures.ts";
import { cutsAfter, failsAfter, failure, says, stallsAfter, stallsBeforeText } from "../support/openai-upstream.ts";
import { errorOf, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, parseEvents, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const ENDPOINTS = [
  {
    endpoint: "stream",
    validate: validators.RawStreamPart,
    failed: (error: string) => ({ type: "error", error }),
    last: null,
  },
  {
    endpoint: "chat",
    validate: validators.UIMessageChunk,
    failed: (errorText: string) => ({ type: "error", errorText }),
    last: "[DONE]",
  },
  {
    endpoint: "stream-object",
    validate: validators.ObjectStreamEvent,
    failed: (error: string) => ({ type: "error", error }),
    last: null,
  },
];
const BODY = { input: "x", schema: { type: "object" } };

for (const transport of TRANSPORTS) {
  const serve = (t: Parameters<typeof serveUpstream>[0], limits: object = {}) =>
    serveUpstream(t, {}, { server: { transport, limits } });

  describe(`streams over ${transport}`, () => {
    for (const { endpoint, validate, failed, last } of ENDPOINTS) {
      const path = `/agents/assistant/${endpoint}`;

      test(`POST /agents/:id/${endpoint}: the headers of a stream, ids from 1, data of one line, and what comes last`, async (t) => {
        const { service, upstream } = await serve(t);
        upstream.replies(says('{"text": "a\\nb"}', { chunks: 4, delay: 5 }));
        const reply = await service.post(path, BODY, { "x-request-id": "req-1" });
        const header = (name: string) => reply.headers.get(name);
        assert.equal(header("content-type"), "text/event-stream; charset=utf-8");
        assert.equal(header("cache-control"), "no-cache, no-transform");
        assert.equal(header("x-accel-buffering"), "no");
        assert.equal(header("x-request-id"), "req-1");
        assert.equal(header("x-vercel-ai-ui-message-stream"), endpoint === "chat" ? "v1" : null);
        const text = await reply.text();
        const blocks = text
          .split("\n\n")
          .slice(0, -1)
          .filter((block) => !block.startsWith(":"));
        assert.ok(text.endsWith("\n\n"));
        if (last !== null) assert.equal(blocks.pop(), `data: ${last}`);
        assert.ok(blocks.length > 1);
        blocks.forEach((block, index) => {
          const [id, data, ...more] = block.split("\n");
          assert.equal(id, `id: ${index + 1}`);
          assert.match(data!, /^data: \{/);
          assert.deepEqual(more, []);
          assert.ok(validate(JSON.parse(data!.slice(6))), data);
        });
        assert.doesNotMatch(blocks.join(), /\[DONE\]/);
      });

      test(`POST /agents/:id/${endpoint}: a model that refuses before the first byte is a plain reply with a status`, async (t) => {
        const { service, upstream } = await serve(t);
        upstream.replies({ ...failure(429, { message: "you owe us money" }), headDelay: 50 });
        const reply = await service.post(path, BODY);
        assert.match(reply.headers.get("content-type") ?? "", /^application\/json/);
        assert.equal(reply.headers.get("x-error-code"), "rate_limited");
        assert.deepEqual(await errorOf(reply), { status: 429, error: "model provider failed: rate limited" });
      });

      const BREAKS = {
        "breaks off": cutsAfter('{"te'),
        "sends an error": failsAfter('{"te', { message: "you owe us money", type: "server_error" }),
      };
      for (const [title, reply] of Object.entries(BREAKS)) {
        test(`POST /agents/:id/${endpoint}: a model that ${title} after the first byte is an in-band error event, and the end`, async (t) => {
          const { service, upstream } = await serve(t);
          upstream.replies(reply);
          const reader = new EventReader(service.url + path, BODY);
          await reader.end();
          assert.equal(reader.status, 200);
          const error = "model provider failed: unavailable";
          assert.deepEqual(reader.events.at(-1), failed(error));
          assert.equal(reader.events.filter(({ type }) => type === "error").length, 1);
          assert.ok(!reader.events.some(({ type }) => type === "finish" || type === "final"));
          assert.equal(upstream.requests.length, 1, "no second try after the first visible byte");
        });
      }

      test(`POST /agents/:id/${endpoint}: headers go out when the model has accepted the call, before it says anything`, async (t) => {
        const { service, upstream } = await serve(t);
        upstream.replies(stallsBeforeText());
        const reader = new EventReader(service.url + path, BODY);
        await reader.head();
        assert.equal(reader.status, 200);
        assert.doesNotMatch(reader.text, /delta|partial/);
        reader.leave();
      });
    }

    test("POST /agents/:id/stream: silence brings a comment line at every heartbeat, which is no event", async (t) => {
      const { service, upstream } = await serve(t, { heartbeat: "250ms" });
      upstream.replies(stallsAfter("Well"));
      const reader = new EventReader(`${service.url}/agents/assistant/stream`, BODY);
      const silence = () => reader.text.slice(reader.text.lastIndexOf("data: "));
      await reader.until(() => reader.text.includes("data: ") && (silence().match(/^: *$/gm) ?? []).length >= 2);
      assert.equal(reader.sent.at(-1)!.id, String(reader.sent.length), "comments take no id");
      reader.leave();
    });

    test("POST /agents/:id/chat: [DONE] is the last line after an error too", async (t) => {
      const { service, upstream } = await serve(t);
      upstream.replies(cutsAfter("Well"));
      const sent = parseEvents(await (await service.post("/agents/assistant/chat", BODY)).text());
      assert.deepEqual(
        sent.slice(-2).map(({ data }) => data),
        ['{"type":"error","errorText":"model provider failed: unavailable"}', "[DONE]"],
      );
    });
  });
}

for (const { endpoint, validate } of ENDPOINTS) {
  test(`POST /agents/:id/${endpoint}: whatever a model says, every event is one that GET /doc describes`, async (t) => {
    const tools = { sum: { use: "add" }, fail: { use: "fail" } };
    const agent = { model: "all/everything", tools: Object.keys(tools) };
    const manifest = manifestWith(agent, { providers: { all: { use: "showcase" } }, tools });
    const service = await startService(t, manifest, { plugins: [FIXTURES] });
    const body = { input: "x", schema: { type: "string" } };
    const sent = parseEvents(await (await service.post(`/agents/assistant/${endpoint}`, body)).text());
    const events = sent.filter(({ data }) => data !== "[DONE]").map(({ data }) => JSON.parse(data));
    assert.ok(events.length > 0);
    for (const event of events)
      assert.ok(validate(event), `${JSON.stringify(event)}: ${JSON.stringify(validate.errors)}`);
  });
}

describe("waiting for the model", { concurrency: 3 }, () => {
  for (const { endpoint, failed } of ENDPOINTS) {
    test(`POST /agents/:id/${endpoint}: after 5 s of waiting the headers go out, and a refusal after that is in-band`, async (t) => {
      const { service, upstream } = await serveUpstream(t);
      let answer: (value?: unknown) => void = () => {};
      const after = new Promise((resolve) => {
        answer = resolve;
      });
      upstream.replies({ ...failure(400), after });
      const started = performance.now();
      const reader = new EventReader(`${service.url}/agents/assistant/${endpoint}`, BODY);
      await reader.head();
      assert.ok(performance.now() - started > 4_500, "not before");
      assert.equal(reader.status, 200);
      assert.ok(!upstream.requests[0]!.completed, "the model has not answered by then");
      answer();
      await reader.end();
      assert.deepEqual(reader.events, [failed("model provider failed: refused the request")]);
    });
  }
});
