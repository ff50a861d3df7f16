import assert from "node:assert/strict";
import { test } from "node:test";
import { ServiceError } from "../../../core/lib/errors.ts";
import { assistant, caller, Events, eventsOf } from "../../support/agents.ts";

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

test("an answer of a schema that does not fit is repaired in a stream without partials of the second one", async (t) => {
  const replies = [{ when: "does not fit", object: ADA }, { object: { name: "Ada" } }];
  const agent = await assistant(t, {}, { replies, provider: { chunks: 3 } });
  const events = await eventsOf(agent.streamObject({ input: "x", schema: PERSON }, caller()));
  for (const { partialUpdate } of events.of("partial")) assert.equal("age" in (partialUpdate as object), false);
  assert.deepEqual(events.list.at(-1)!.finalObject, ADA);
});

test("a stream whose answer does not fit options.output fails after one repair, and says no finish", async (t) => {
  const agent = await assistant(t, {}, { replies: [{ text: "no" }] });
  const options = { output: { type: "object" as const, schema: PERSON } };
  const events = new Events();
  await assert.rejects((await agent.stream({ input: "x", options }, caller()))(events), failsWith(/does not fit/));
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
