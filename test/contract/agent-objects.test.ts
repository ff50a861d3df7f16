/** Contract, "Agents": `/object` and `/stream-object` hold to the schema of the request. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { SHOWN_USAGE, says, saysJson } from "../support/openai-upstream.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, parseEvents, startService } from "../support/service.ts";

const OBJECT = "/agents/assistant/object";
const SCHEMA = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer", minimum: 1 } },
  required: ["city", "days"],
  additionalProperties: false,
};

const nested = (levels: number): object =>
  levels === 1 ? { type: "string" } : { type: "array", items: nested(levels - 1) };

const BAD: [title: string, schema: unknown, error: RegExp][] = [
  ["missing", undefined, /^schema is required$/],
  ["no object", "object", /^schema must be object$/],
  ["without a type", { properties: {} }, /^schema must be a JSON Schema with a type$/],
  ["of an unknown type", { type: "wizard" }, /^schema does not compile/],
  ["with a broken pattern", { type: "string", pattern: "(" }, /^schema does not compile/],
  ["deeper than 32 levels", nested(33), /^schema must be at most 32 levels deep$/],
  ["larger than 64 KiB", { type: "string", description: "x".repeat(65_600) }, /^schema must be at most 64 KiB$/],
  [
    "with a reference to another server",
    { type: "object", properties: { a: { $ref: "http://127.0.0.1:1/secret.json" } } },
    /^schema must not refer to another document/,
  ],
];

for (const endpoint of ["object", "stream-object"]) {
  describe(`POST /agents/:id/${endpoint}`, () => {
    for (const [title, schema, error] of BAD) {
      test(`POST /agents/:id/object and /stream-object: a schema that is ${title} is 400, a plain reply`, async (t) => {
        const service = await startService(t, manifestWith());
        const answer = await errorOf(service.post(`/agents/assistant/${endpoint}`, { input: "x", schema }));
        assert.equal(answer.status, 400, answer.error);
        assert.match(answer.error, error);
      });
    }

    test("sends the schema as response_format, and neither the agent's tools nor options.output", async (t) => {
      const { service, upstream } = await serveUpstream(t, { tools: ["sum"] }, { tools: { sum: { use: "add" } } });
      upstream.fallback(saysJson({ city: "Lisbon", days: 3 }));
      const options = { output: { type: "object", schema: { type: "object", properties: { other: {} } } } };
      await (await service.post(`/agents/assistant/${endpoint}`, { input: "x", schema: SCHEMA, options })).text();
      const { tools, response_format } = upstream.requests[0]!.body;
      assert.equal(tools, undefined);
      assert.deepEqual(response_format.json_schema.schema, SCHEMA);
    });
  });
}

describe("POST /agents/:id/object", () => {
  const VALUES: [schema: object, value: unknown][] = [
    [SCHEMA, { city: "Lisbon", days: 3 }],
    [{ type: "array", items: { type: "number" } }, [1, 2]],
    [{ type: "string" }, "Lisbon"],
    [{ type: ["number", "null"] }, null],
    [nested(32), JSON.parse(`${"[".repeat(31)}"x"${"]".repeat(31)}`)],
  ];
  for (const [schema, value] of VALUES) {
    test(`POST /agents/:id/object gives any value that fits: ${JSON.stringify(value).slice(0, 40)}`, async (t) => {
      const { service, upstream } = await serveUpstream(t);
      upstream.replies(saysJson(value));
      const reply = (await (await service.post(OBJECT, { input: "x", schema })).json()) as Loose;
      assert.deepEqual(reply, { success: true, data: value });
    });
  }

  test("an answer that does not fit is repaired in one more call, which is told what is wrong", async (t) => {
    const { service, upstream } = await serveUpstream(t);
    upstream.replies(saysJson({ city: "Lisbon", days: 0 }), saysJson({ city: "Lisbon", days: 1 }));
    assert.deepEqual(await dataOf(service.post(OBJECT, { input: "x", schema: SCHEMA })), { city: "Lisbon", days: 1 });
    const [, second] = upstream.requests;
    assert.match(second!.lastUserText, /result\.days must be >= 1/);
    assert.equal(second!.body.messages.at(-2).content, '{"city":"Lisbon","days":0}');
  });

  test("an answer that does not fit after one repair is 500 and says what is wrong", async (t) => {
    const { service, upstream } = await serveUpstream(t);
    upstream.fallback(saysJson({ city: "Lisbon" }));
    const reply = await service.post(OBJECT, { input: "x", schema: SCHEMA });
    assert.equal(reply.headers.get("x-error-code"), "provider_failed");
    const { status, error } = await errorOf(reply);
    assert.equal(status, 500);
    assert.match(error, /days is required/);
    assert.equal(upstream.requests.length, 2);
  });
});

describe("POST /agents/:id/stream-object", () => {
  const STREAM = "/agents/assistant/stream-object";
  const eventsOf = async (reply: Response): Promise<Loose[]> =>
    parseEvents(await reply.text()).map(({ data }) => JSON.parse(data));

  test("sends partial objects that grow, then the final one with usage and finish reason, and nothing behind it", async (t) => {
    const { service, upstream } = await serveUpstream(t);
    upstream.replies(saysJson({ city: "Lisbon", days: 12 }, { chunks: 6, delay: 60 }));
    const events = await eventsOf(await service.post(STREAM, { input: "x", schema: SCHEMA }));
    const partials = events.slice(0, -1);
    assert.ok(partials.length >= 2, `${partials.length} partials`);
    let last = 0;
    for (const { type, partialUpdate, ...rest } of partials) {
      assert.equal(type, "partial");
      assert.deepEqual(rest, {});
      const size = JSON.stringify(partialUpdate).length;
      assert.ok(size > last, "a partial is sent only when the object has grown");
      last = size;
      assert.ok("Lisbon".startsWith(partialUpdate.city));
    }
    assert.deepEqual(events.at(-1), {
      type: "final",
      finalObject: { city: "Lisbon", days: 12 },
      usage: SHOWN_USAGE,
      finishReason: "stop",
      model: "up/test-model",
    });
  });

  test("a result that does not fit after one repair is an error event, and there is no final one", async (t) => {
    const { service, upstream } = await serveUpstream(t);
    upstream.fallback(says("no JSON at all"));
    const reply = await service.post(STREAM, { input: "x", schema: SCHEMA });
    assert.equal(reply.status, 200);
    const events = await eventsOf(reply);
    assert.equal(events.at(-1).type, "error");
    assert.match(events.at(-1).error, /does not fit the schema: it is not JSON/);
    assert.ok(!events.some(({ type }) => type === "final"));
    assert.equal(upstream.requests.length, 2);
  });
});
