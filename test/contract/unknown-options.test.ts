/** Keys in `options` of a request that nothing reads: the reply names them in `x-warning`. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { manifestWith, startService, type TestService } from "../support/service.ts";

const REST = {
  memory: { default: {} },
  workflows: { w: { steps: [{ id: "a", andThen: { set: "{{ data }}" } }] } },
};
const serve = (t: TestContext): Promise<TestService> => startService(t, manifestWith({ memory: "default" }, REST));

const MESSAGES = [{ id: "m", role: "user", parts: [{ type: "text", text: "Hi" }] }];
const schema = { type: "object" };
const REQUESTS: readonly [path: string, body: object, known: object][] = [
  ["/agents/assistant/text", { input: "Hi" }, { temperature: 0.5 }],
  ["/agents/assistant/stream", { input: "Hi" }, { runId: "a" }],
  ["/agents/assistant/chat", { messages: MESSAGES }, { userId: "ada" }],
  ["/agents/assistant/object", { input: "Hi", schema }, { maxSteps: 2 }],
  ["/agents/assistant/stream-object", { input: "Hi", schema }, { context: { any: { key: 1 } } }],
  ["/workflows/w/execute", { input: {} }, { metadata: { any: { key: 1 } } }],
  ["/workflows/w/stream", { input: {} }, { workflowState: { any: 1 } }],
];

for (const [path, body, known] of REQUESTS)
  test(`POST ${path}: x-warning names the unknown keys of options, and nothing else`, async (t) => {
    const service = await serve(t);
    const warning = async (options: object | undefined) => {
      const reply = await service.post(path, { ...body, options });
      assert.equal(reply.status, 200, await reply.text());
      return reply.headers.get("x-warning");
    };
    assert.equal(await warning(undefined), null);
    assert.equal(await warning({}), null);
    assert.equal(await warning(known), null);
    assert.equal(await warning({ ...known, foo: 1 }), "unknown keys in options are ignored: foo");
  });

test("POST /agents/:id/text: x-warning says what a misspelt option may mean, at every depth, and leaves free objects alone", async (t) => {
  const service = await serve(t);
  const { headers } = await service.post("/agents/assistant/text", {
    input: "Hi",
    options: {
      temprature: 0,
      memory: { userId: "ada", conversationID: "c", options: { semanticMemory: { limit: 1 } } },
      context: { temprature: 1 },
      providerOptions: { any: { thing: 1 } },
    },
  });
  assert.equal(
    headers.get("x-warning"),
    "unknown keys in options are ignored: temprature (did you mean temperature?), memory.conversationID (did you mean conversationId?), memory.options.semanticMemory.limit",
  );
});

test("POST /agents/:id/text: x-warning is short ASCII whatever the keys are, and a failure has it too", async (t) => {
  const service = await serve(t);
  const many = Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`key${index}`, 1]));
  const options = { "ключ\r\nset-cookie: a": 1, ["x".repeat(10_000)]: 1, constructor: 1, ...many };
  const { headers } = await service.post("/agents/assistant/text", { input: "Hi", options });
  const warning = headers.get("x-warning")!;
  assert.match(
    warning,
    /^unknown keys in options are ignored: \?\?\?\?\?\?set-cookie:\?a, x{64}\.\.\., constructor, key0, /,
  );
  assert.match(warning, /^[\x20-\x7e]{1,1000}, \.\.\.$/);
  assert.equal(headers.get("set-cookie"), null);
  const failed = await service.post("/agents/assistant/text", { input: [], options: { foo: 1 } });
  assert.equal(failed.status, 400);
  assert.equal(failed.headers.get("x-warning"), "unknown keys in options are ignored: foo");
});

test("POST /agents/:id/text with an Idempotency-Key: a repeated request gets x-warning once more, and CORS headers once", async (t) => {
  const service = await serve(t);
  const send = () =>
    service.post(
      "/agents/assistant/text",
      { input: "Hi", options: { runId: "run-1", foo: 1 } },
      { "idempotency-key": "k", origin: "https://app.example" },
    );
  const first = await send();
  const second = await send();
  assert.equal(second.headers.get("idempotency-replayed"), "true");
  for (const name of ["x-warning", "access-control-allow-origin", "access-control-expose-headers"]) {
    assert.ok(first.headers.get(name), name);
    assert.equal(second.headers.get(name), first.headers.get(name), name);
  }
  assert.match(first.headers.get("access-control-expose-headers")!, /x-warning/);
});
