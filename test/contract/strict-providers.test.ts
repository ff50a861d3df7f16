/** Agents on upstreams that refuse what the real providers refuse, through the real provider packages. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, describe, test } from "node:test";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { STRICT, STRICT_NAMES, type StrictName, serveStrict } from "../support/strict-providers.ts";

const SUM = { name: "sum", input: { a: 1, b: 2 } };
const ODD = ["shop.sum", "shop:sum", `shop.${"x".repeat(70)}`, "1st"];
const TOOLS = {
  sum: { use: "add" },
  fail: { use: "fail" },
  ask: { client: true, description: "Asks the user" },
  ...Object.fromEntries(ODD.map((name) => [name, { use: "add" }])),
};
const AGENTS = {
  tooled: { tools: ["sum", "fail"] },
  assistant: { tools: ["sum", "fail"], memory: "default" },
  asking: { tools: ["sum", "ask"], memory: "default" },
  named: { tools: ODD, memory: "default" },
  plain: {},
};

const TEXT = "/agents/assistant/text";
const PLAIN = "/agents/plain/text";

/** One service for each provider, which its tests share. */
const services = new Map<StrictName, Awaited<ReturnType<typeof serveStrict>>>();
for (const name of STRICT_NAMES) {
  const { model, thinking } = STRICT[name];
  const common = { instructions: "Help.", model: `up/${model}`, options: thinking, memory: false };
  const agents = Object.fromEntries(Object.entries(AGENTS).map(([id, agent]) => [id, { ...common, ...agent }]));
  services.set(
    name,
    await serveStrict({ after } as never, name, {}, { agents, tools: TOOLS, memory: { default: {} } }),
  );
}

/** For one test, with a conversation of its own. */
function served(name: StrictName) {
  const { service, upstream } = services.get(name)!;
  upstream.requests.length = 0;
  upstream.refusals.length = 0;
  const conversationId = randomUUID();
  return {
    service,
    upstream,
    conversationId,
    say: (input: unknown, agent: keyof typeof AGENTS = "assistant") =>
      service.post(`/agents/${agent}/text`, { input, options: { conversationId } }),
  };
}

/** What a provider was sent, without the order of keys: for a search of what must be in it. */
const sent = (body: Loose): string => JSON.stringify(body);

/** How each provider's reasoning looks that comes back, before the call that it led to. */
const COMES_BACK: Record<(typeof STRICT_NAMES)[number], RegExp> = {
  "OpenAI Responses": /"item_reference","id":"rs_\d+"},{"type":"function_call"/,
  "OpenAI Responses with store: false": /"reasoning",[^{]*"encrypted_content":"gAAAA\d+",.*"function_call"/,
  "OpenAI chat completions": /"tool_calls":/,
  "OpenAI chat completions of a reasoning model": /"tool_calls":/,
  Anthropic:
    /"thinking":"A sum.","signature":"sig\d+"},{"type":"redacted_thinking","data":"redacted\d+"},{"type":"tool_use"/,
  Azure: /"tool_calls":/,
  OpenRouter: /"reasoning":"A sum.","reasoning_details":\[.*"signature":"sig\d+"}.*"data":"ENC\d+"/,
  DeepSeek: /"reasoning_content":"A sum."/,
  Groq: /"tool_calls":/,
  Mistral: /"tool_calls":/,
  "Gemini's chat completions": /"extra_content":{"google":{"thought_signature":"sig\d+"}}/,
  Gemini: /"functionCall":{[^}]*"name":"sum","args":{[^}]*}},"thoughtSignature":"sig\d+"/,
};

for (const name of STRICT_NAMES) {
  describe(name, () => {
    test(`POST /agents/:id/text on ${name}: thoughts, parallel calls, failed calls and text without a word over three steps are accepted`, async () => {
      const { upstream, say } = served(name);
      upstream.says(
        { thought: "Two sums.", text: "Adding.", calls: [SUM, { name: "fail" }] },
        { thought: "One more.", hidden: true, text: "\n\n", calls: [SUM] },
        { thought: "Done.", text: "Three." },
      );
      const data = await dataOf(say("Add", "tooled"));
      assert.deepEqual(upstream.refusals, []);
      assert.equal(data.text, "Three.");
      assert.equal(upstream.requests.length, 3);
      assert.doesNotMatch(sent(upstream.requests), /skip_thought_signature_validator/);
    });

    test(`POST /agents/:id/text on ${name}: the next turns of a conversation with calls are accepted, thoughts and all`, async () => {
      const { upstream, say } = served(name);
      upstream.says(
        { thought: "A sum.", calls: [SUM] },
        { thought: "Now tell.", hidden: true, text: "Three." },
        { hidden: true, calls: [SUM] },
        { text: "Still three." },
        { text: "Welcome." },
      );
      for (const [input, answer] of [
        ["Add", "Three."],
        ["Again", "Still three."],
        ["Thanks", "Welcome."],
      ]) {
        const reply = await say(input);
        const body: Loose = await reply.json();
        assert.deepEqual(upstream.refusals, []);
        assert.equal(body.data?.text, answer, JSON.stringify(body));
      }
      assert.doesNotMatch(sent(upstream.requests), /skip_thought_signature_validator/);
    });

    test(`POST /agents/:id/text on ${name}: reasoning comes back in the next step, in the next turn, and with stored messages that a client posts`, async () => {
      const { service, upstream, conversationId, say } = served(name);
      upstream.says(
        { thought: "A sum.", hidden: true, calls: [SUM] },
        { text: "Three." },
        { text: "Welcome." },
        { text: "Yes." },
      );
      await dataOf(say("Add"));
      await dataOf(say("Thanks"));
      const { messages } = await dataOf(service.get(`/api/memory/conversations/${conversationId}/messages`));
      const input = [...messages, { role: "user", content: "Sure?" }];
      await dataOf(service.post(TEXT, { input }));
      assert.deepEqual(upstream.refusals, []);
      assert.equal(upstream.requests.length, 4);
      for (const request of upstream.requests.slice(1)) assert.match(sent(request), COMES_BACK[name]);
    });

    test(`POST /agents/:id/text on ${name}: results of a client-side tool go back with what was thought before its call, alone and in later turns`, async () => {
      const { upstream, say } = served(name);
      upstream.says(
        { thought: "A sum.", hidden: true, calls: [SUM, { name: "ask" }] },
        { thought: "Ask again.", calls: [{ name: "ask" }] },
        { thought: "Now tell.", text: "Three." },
        { text: "Welcome." },
      );
      const answer = ({ toolCalls }: Loose) => {
        const { toolCallId, toolName } = toolCalls.at(-1);
        return [{ role: "tool", content: [{ type: "tool-result", toolCallId, toolName, output: "yes" }] }];
      };
      const first = await dataOf(say("Add", "asking"));
      const second = await dataOf(say(answer(first), "asking"));
      const third = await dataOf(say(answer(second), "asking"));
      assert.equal(third.text, "Three.");
      await dataOf(say("Thanks", "asking"));
      assert.deepEqual(upstream.refusals, []);
      assert.equal(upstream.requests.length, 4);
      assert.doesNotMatch(sent(upstream.requests), /skip_thought_signature_validator|not completed/);
      assert.match(sent(upstream.requests[1]), COMES_BACK[name]);
    });

    test(`POST /agents/:id/text on ${name}: system messages of the client are accepted wherever they stand, with a conversation before them`, async () => {
      const { upstream, say } = served(name);
      upstream.says({ text: "One." }, { text: "Two." });
      await dataOf(say("First"));
      const input = [
        { role: "system", content: "Be brief." },
        { role: "user", content: "Second" },
        { role: "system", content: "Be kind." },
        { role: "user", content: "Third" },
      ];
      const reply = await say(input);
      assert.deepEqual(upstream.refusals, []);
      assert.equal(reply.status, 200, await reply.text());
    });

    test(`POST /agents/:id/text on ${name}: a contextLimit that cuts a turn in two is accepted`, async () => {
      const { service, upstream, conversationId, say } = served(name);
      upstream.says({ calls: [SUM] }, { text: "Three." }, { text: "Welcome." });
      await dataOf(say("Add"));
      const options = { conversationId, contextLimit: 1 };
      const reply = await service.post(TEXT, { input: "Thanks", options });
      assert.deepEqual(upstream.refusals, []);
      assert.equal(reply.status, 200, await reply.text());
      assert.doesNotMatch(sent(upstream.requests.at(-1)), /Three\./, "half a turn is not told");
    });

    test(`POST /agents/:id/text on ${name}: wherever an answer broke off, the next turn of the conversation is accepted`, async () => {
      const { service, upstream, conversationId } = served(name);
      let broken = 0;
      for (let status = 0; status !== 200 && broken < 40; broken++) {
        const options = { conversationId: `${conversationId}-${broken}` };
        const answer = { thought: "Let me see.", text: "Three.", calls: [SUM], breaksAfter: broken + 1 };
        upstream.says({ calls: [SUM] }, answer);
        ({ status } = await service.post(TEXT, { input: "Add", options }));
        const reply = await service.post(TEXT, { input: "Thanks", options });
        assert.deepEqual(upstream.refusals, [], `after ${broken + 1} events`);
        assert.equal(reply.status, 200, `after ${broken + 1} events: ${await reply.text()}`);
      }
      assert.ok(broken > 4, "it broke off several times, and was whole at last");
    });

    test(`POST /agents/:id/object on ${name}: a schema that is closed gives an object`, async () => {
      const { service, upstream } = served(name);
      const properties = { sum: { type: "number" }, note: { type: "string" } };
      const schema = { type: "object", properties, required: ["sum", "note"], additionalProperties: false };
      upstream.says({ text: '{"sum":3,"note":"Three."}' });
      const reply = await service.post("/agents/plain/object", { input: "Add", schema });
      const body: Loose = await reply.json();
      assert.deepEqual(upstream.refusals, []);
      assert.deepEqual(body.data, { sum: 3, note: "Three." }, JSON.stringify(body));
    });

    test(`POST /agents/:id/object on ${name}: an open schema gives an object too, even if the provider refuses to enforce it`, async (t) => {
      const { service, upstream } = await serveStrict(t, name);
      const schema = { type: "object", properties: { sum: { type: "number" } } };
      upstream.says({ text: '{"sum":3}' });
      assert.deepEqual(await dataOf(service.post("/agents/assistant/object", { input: "Add", schema })), { sum: 3 });
    });

    test(`POST /agents/:id/text on ${name}: options.output without a schema gives an object with one call`, async () => {
      const { service, upstream } = served(name);
      upstream.says({ text: '{"sum":3}' });
      const { output } = await dataOf(service.post(PLAIN, { input: "Add", options: { output: { type: "object" } } }));
      assert.deepEqual(output, { sum: 3 });
      assert.equal(upstream.requests.length, 1);
      assert.deepEqual(upstream.refusals, []);
    });

    test(`POST /agents/:id/text on ${name}: a conversation in which the assistant speaks first is accepted`, async () => {
      const { service, upstream } = served(name);
      upstream.says({ text: "One." });
      const input = [
        { role: "assistant", parts: [{ type: "text", text: "What can I do for you?" }] },
        { role: "user", parts: [{ type: "text", text: "Count" }] },
      ];
      const reply = await service.post(PLAIN, { input });
      assert.deepEqual(upstream.refusals, []);
      assert.equal(reply.status, 200, await reply.text());
    });

    test(`POST /agents/:id/text on ${name}: two calls with one id in two steps are two calls`, async () => {
      const { upstream, say } = served(name);
      const call = (a: number) => ({ calls: [{ name: "sum", input: { a, b: 1 }, id: "call_0" }] });
      upstream.says(call(1), call(2), { text: "Done." }, { text: "Welcome." });
      const data = await dataOf(say("Add"));
      assert.deepEqual(
        data.toolResults.map(({ output }: Loose) => output),
        [{ sum: 2 }, { sum: 3 }],
      );
      await dataOf(say("Thanks"));
      assert.deepEqual(upstream.refusals, []);
      for (const result of ['{\\"sum\\":2}', '{\\"sum\\":3}'])
        assert.ok(sent(upstream.requests.at(-1)).replaceAll('{"sum":', '{\\"sum\\":').includes(result.slice(0, -1)));
    });

    test(`POST /agents/:id/text on ${name}: tools whose names the provider refuses are called by other names`, async () => {
      const { upstream, say } = served(name);
      upstream.says({ text: "Ready." });
      await dataOf(say("What can you do?", "named"));
      assert.deepEqual(upstream.refusals, []);
      const names = [...sent(upstream.requests[0].tools).matchAll(/"name":"([^"]+)"/g)].map(([, found]) => found!);
      assert.equal(new Set(names).size, 4);
      upstream.says(
        { calls: names.map((tool) => ({ name: tool, input: { a: 1, b: 1 } })) },
        { text: "Done." },
        { text: "Welcome." },
      );
      const data = await dataOf(say("Add", "named"));
      assert.deepEqual(data.toolCalls.map(({ toolName }: Loose) => toolName).sort(), ODD.toSorted());
      assert.deepEqual(data.toolResults.length, 4);
      await dataOf(say("Thanks", "named"));
      assert.deepEqual(upstream.refusals, []);
    });

    test(`POST /agents/:id/text on ${name}: an image without a media type is known by its bytes`, async () => {
      const { service, upstream } = served(name);
      upstream.says({ text: "A dot." });
      const image = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
      const content = [
        { type: "text", text: "What is it?" },
        { type: "image", image },
      ];
      const reply = await service.post(PLAIN, { input: [{ role: "user", content }] });
      assert.deepEqual(upstream.refusals, []);
      assert.equal(reply.status, 200, await reply.text());
      assert.match(sent(upstream.requests[0]), /image\/gif/);
    });
  });
}
