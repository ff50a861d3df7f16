import assert from "node:assert/strict";
import { test } from "node:test";
import { ServiceError } from "../../../core/lib/errors.ts";
import { assistant, caller, Events, eventsOf, historyOf } from "../../support/agents.ts";

const PERSON = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "number" } },
  required: ["name", "age"],
  additionalProperties: false,
};
const ADA = { name: "Ada", age: 36 };
const failsWith = (message: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ServiceError);
  assert.equal(error.kind, "provider_failed");
  assert.match(error.message, message);
  return true;
};

test("POST /agents/:id/object gives an object that conforms to the schema", async (t) => {
  const agent = await assistant(t, {}, { replies: [{ when: "ada", object: ADA }] });
  assert.deepEqual(await agent.generateObject({ input: "Ada", schema: PERSON }, caller()), ADA);
  const [entry] = (await historyOf(agent, 0, 1)).entries;
  assert.deepEqual(entry!.output, ADA);
});

test("POST /agents/:id/object asks once more when the answer does not fit, and says what is wrong", async (t) => {
  const replies = [
    { when: "does not fit: result.age must be number", object: ADA },
    { when: "ada", object: { name: "Ada", age: "36" } },
  ];
  const agent = await assistant(t, {}, { replies });
  assert.deepEqual(await agent.generateObject({ input: "Ada", schema: PERSON }, caller()), ADA);
});

test("POST /agents/:id/object fails when the second answer does not fit either", async (t) => {
  const agent = await assistant(t, {}, { replies: [{ text: "I would rather not" }] });
  await assert.rejects(
    agent.generateObject({ input: "Ada", schema: PERSON }, caller()),
    failsWith(/^the model's answer does not fit the schema: it is not JSON$/),
  );
  assert.equal((await historyOf(agent, 0, 1)).entries[0]!.status, "error");
});

test("POST /agents/:id/object offers the model no tools, and ignores options.output", async (t) => {
  const replies = [{ when: "go", call: { tool: "add", input: {} } }];
  const agent = await assistant(t, { tools: ["add"] }, { replies, tools: { add: { use: "add" } } });
  const options = { output: { type: "text" as const } };
  const result = (await agent.generateObject({ input: "go", schema: PERSON, options }, caller())) as typeof ADA;
  assert.equal(typeof result.name, "string");
  assert.equal(typeof result.age, "number");
});

test("POST /agents/:id/object takes any schema with a type, arrays and texts too", async (t) => {
  const agent = await assistant(
    t,
    {},
    {
      replies: [
        { when: "list", text: "[1, 2]" },
        { when: "word", text: '"hi"' },
      ],
    },
  );
  const list = { type: "array", items: { type: "number" } };
  assert.deepEqual(await agent.generateObject({ input: "list", schema: list }, caller()), [1, 2]);
  assert.equal(await agent.generateObject({ input: "word", schema: { type: "string" } }, caller()), "hi");
});

test("POST /agents/:id/stream-object sends partial updates while the object grows, then the final object", async (t) => {
  const agent = await assistant(t, {}, { replies: [{ object: ADA }], provider: { chunks: 6, delay: "70ms" } });
  const events = await eventsOf(agent.streamObject({ input: "Ada", schema: PERSON }, caller()));
  const partials = events.of("partial").map((event) => event.partialUpdate as Partial<typeof ADA>);
  assert.ok(partials.length >= 1);
  for (const { name } of partials) assert.ok(ADA.name.startsWith(name!));
  assert.deepEqual(
    partials.map(({ name, age }) => `${name}${age ?? ""}`),
    partials.map(({ name, age }) => `${name}${age ?? ""}`).sort(),
    "each is longer than the one before",
  );
  const final = events.list.at(-1)!;
  assert.deepEqual(Object.keys(final).sort(), ["finalObject", "finishReason", "model", "type", "usage"]);
  assert.deepEqual(final.finalObject, ADA);
  assert.equal(final.finishReason, "stop");
  assert.equal(events.list.length, partials.length + 1);
});

test("POST /agents/:id/stream-object repairs an answer that does not fit, without partials of the second one", async (t) => {
  const replies = [{ when: "does not fit", object: ADA }, { object: { name: "Ada" } }];
  const agent = await assistant(t, {}, { replies, provider: { chunks: 3 } });
  const events = await eventsOf(agent.streamObject({ input: "x", schema: PERSON }, caller()));
  for (const { partialUpdate } of events.of("partial")) assert.equal("age" in (partialUpdate as object), false);
  assert.deepEqual(events.list.at(-1)!.finalObject, ADA);
});

test("POST /agents/:id/stream-object fails after its partials when nothing fits", async (t) => {
  const agent = await assistant(t, {}, { replies: [{ object: { name: "Ada" } }] });
  const events = new Events();
  await assert.rejects(
    agent.streamObject({ input: "x", schema: PERSON }, caller())(events),
    failsWith(/result\.age is required/),
  );
  assert.deepEqual(events.types(), ["partial"]);
});

test("options.output of type object gives data.output beside the text, and tools stay available", async (t) => {
  const replies = [{ when: "add", call: { tool: "add", input: { a: 1, b: 2 } } }];
  const agent = await assistant(t, { tools: ["add"] }, { replies, tools: { add: { use: "add" } } });
  const schema = { type: "object", properties: { sum: { type: "number" } }, required: ["sum"] };
  const options = { output: { type: "object" as const, schema } };
  const result = await agent.generateText({ input: "add", options }, caller());
  assert.deepEqual(result.output, { sum: 3 });
  assert.equal(result.toolResults.length, 1);

  const events = await eventsOf(agent.stream({ input: "add", options }, caller()));
  assert.deepEqual(events.of("finish")[0]!.output, { sum: 3 });
});

test("options.output without a schema takes any object", async (t) => {
  const agent = await assistant(t, {}, { replies: [{ when: "x", object: { any: 1 } }] });
  const result = await agent.generateText({ input: "x", options: { output: { type: "object" } } }, caller());
  assert.deepEqual(result.output, { any: 1 });
});

test("options.output of type text makes output the text, and no output is asked for by default", async (t) => {
  const agent = await assistant(t);
  const asked = await agent.generateText({ input: "hi", options: { output: { type: "text" } } }, caller());
  assert.equal(asked.output, "hi");
  assert.equal("output" in (await agent.generateText({ input: "hi" }, caller())), false);
});

test("options.output whose answer does not fit fails after one repair", async (t) => {
  const agent = await assistant(t, {}, { replies: [{ text: "no" }] });
  const options = { output: { type: "object" as const, schema: PERSON } };
  await assert.rejects(agent.generateText({ input: "x", options }, caller()), failsWith(/does not fit the schema/));
  const events = new Events();
  await assert.rejects(agent.stream({ input: "x", options }, caller())(events), failsWith(/does not fit/));
  assert.equal(events.of("finish").length, 0);
});

test("options.output.schema is bounded as schema is", async (t) => {
  const agent = await assistant(t);
  const options = { output: { type: "object" as const, schema: { properties: {} } } };
  await assert.rejects(
    agent.generateText({ input: "x", options }, caller()),
    /options\.output\.schema must be a JSON Schema with a type/,
  );
});
