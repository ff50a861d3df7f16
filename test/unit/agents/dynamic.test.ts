import assert from "node:assert/strict";
import { test } from "node:test";
import { ServiceError } from "../../../core/lib/errors.ts";
import { agentsOf, assistant, caller, eventsOf } from "../../support/agents.ts";

const refused = (message: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ServiceError, String(error));
  assert.equal(error.kind, "invalid_input");
  assert.match(error.message, message);
  return true;
};

test("instructions may depend on context and user", async (t) => {
  const instructions = "Answer {{ user.name }} in {{ has(context.language) ? context.language : 'English' }}.";
  const agent = await assistant(t, { instructions });
  const tokens = async (context?: Record<string, unknown>) => {
    const result = await agent.generateText(
      { input: "hi", ...(context && { options: { context } }) },
      caller({ name: "Ada" }),
    );
    return result.usage.promptTokens;
  };
  // The scripted model counts words: "Answer Ada in English." and "hi".
  assert.equal(await tokens(), 5);
  assert.equal(await tokens({ language: "Old High German" }), 7);
});

test("instructions that need a field the request does not have are a 400 that names the expression", async (t) => {
  const agent = await assistant(t, { instructions: "For {{ context.tenant }}." });
  await assert.rejects(agent.generateText({ input: "hi" }, caller()), refused(/context\.tenant/));
});

test("model may be an expression; a result that names nothing known is a 400", async (t) => {
  const agents = await agentsOf(t, {
    providers: { demo: { use: "scripted", models: { loud: { replies: [{ text: "LOUD" }] } } } },
    agents: { a: { model: "{{ has(context.model) ? context.model : 'demo/echo' }}" } },
  });
  const agent = agents.get("a")!;
  const say = async (model?: unknown) =>
    (
      await agent.generateText(
        { input: "hi", ...(model !== undefined && { options: { context: { model } } }) },
        caller(),
      )
    ).text;
  assert.equal(await say(), "hi");
  assert.equal(await say("demo/loud"), "LOUD");
  assert.equal(await say(["demo/loud", "demo/echo"]), "LOUD");
  assert.equal(agent.summary().model, "dynamic");
  for (const model of ["nope/echo", "demo/nope", "", 5, [], { a: 1 }])
    await assert.rejects(say(model), refused(/model/));
});

test("a tool with a condition is offered when the condition is true, and is unknown otherwise", async (t) => {
  const replies = [{ call: { tool: "add", input: { a: 1, b: 1 } }, then: "{{ result }}" }];
  const tools = { add: { use: "add" }, nothing: { use: "nothing" } };
  const agent = await assistant(t, { tools: ["nothing", { use: "add", if: "context.maths" }] }, { replies, tools });
  const calls = async (maths: unknown) => {
    const events = await eventsOf(agent.stream({ input: "go", options: { context: { maths } } }, caller()));
    return [events.of("tool-result").length, events.of("tool-error").map((event) => event.error)];
  };
  assert.deepEqual(await calls(true), [1, []]);
  assert.deepEqual(await calls(false), [0, ['there is no tool "add"; the tools are nothing']]);
  await assert.rejects(calls("yes"), refused(/must give true or false/));
});

test("an item of tools may compute its name; a name that nothing has is a 400", async (t) => {
  const replies = [{ call: { tool: "add", input: { a: 1, b: 1 } } }];
  const agent = await assistant(
    t,
    { tools: [{ use: "{{ context.tool }}" }] },
    { replies, tools: { add: { use: "add" } } },
  );
  const run = (tool: string) => agent.generateText({ input: "go", options: { context: { tool } } }, caller());
  assert.equal((await run("add")).toolResults.length, 1);
  await assert.rejects(run("nope"), refused(/there is no tool "nope"/));
});
