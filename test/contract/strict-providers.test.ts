/** Agents on upstreams that refuse what the real providers refuse, through the real provider packages. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { STRICT_NAMES, serveStrict } from "../support/strict-providers.ts";

const TOOLS = { sum: { use: "add" }, fail: { use: "fail" } };
const SUM = { name: "sum", input: { a: 1, b: 2 } };
const TEXT = "/agents/assistant/text";
const withTools = { tools: Object.keys(TOOLS) };
const withMemory = { ...withTools, memory: "default" };
const rest = { tools: TOOLS, memory: { default: {} } };
const inConversation = (input: unknown) => ({ input, options: { conversationId: "c1" } });

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
    test(`POST /agents/:id/text on ${name}: thoughts, parallel calls, failed calls and text without a word over three steps are accepted`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, withTools, rest);
      upstream.says(
        { thought: "Two sums.", text: "Adding.", calls: [SUM, { name: "fail" }] },
        { thought: "One more.", hidden: true, text: "\n\n", calls: [SUM] },
        { thought: "Done.", text: "Three." },
      );
      const data = await dataOf(service.post(TEXT, { input: "Add" }));
      assert.deepEqual(upstream.refusals, []);
      assert.equal(data.text, "Three.");
      assert.equal(upstream.requests.length, 3);
      assert.doesNotMatch(sent(upstream.requests), /skip_thought_signature_validator/);
    });

    test(`POST /agents/:id/text on ${name}: the next turns of a conversation with calls are accepted, thoughts and all`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, withMemory, rest);
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
        const reply = await service.post(TEXT, inConversation(input));
        const body: Loose = await reply.json();
        assert.deepEqual(upstream.refusals, []);
        assert.equal(body.data?.text, answer, JSON.stringify(body));
      }
      assert.doesNotMatch(sent(upstream.requests), /skip_thought_signature_validator/);
    });

    test(`POST /agents/:id/text on ${name}: reasoning comes back in the next step, in the next turn, and with stored messages that a client posts`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, withMemory, rest);
      upstream.says(
        { thought: "A sum.", hidden: true, calls: [SUM] },
        { text: "Three." },
        { text: "Welcome." },
        { text: "Yes." },
      );
      await dataOf(service.post(TEXT, inConversation("Add")));
      await dataOf(service.post(TEXT, inConversation("Thanks")));
      const { messages } = await dataOf(service.get("/api/memory/conversations/c1/messages"));
      const input = [...messages, { role: "user", content: "Sure?" }];
      await dataOf(service.post(TEXT, { input }));
      assert.deepEqual(upstream.refusals, []);
      assert.equal(upstream.requests.length, 4);
      for (const request of upstream.requests.slice(1)) assert.match(sent(request), COMES_BACK[name]);
    });

    test(`POST /agents/:id/text on ${name}: results of a client-side tool go back with what was thought before its call, alone and in later turns`, async (t) => {
      const tools = { ...TOOLS, ask: { client: true, description: "Asks the user" } };
      const { service, upstream } = await serveStrict(
        t,
        name,
        { ...withMemory, tools: ["sum", "ask"] },
        { ...rest, tools },
      );
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
      const first = await dataOf(service.post(TEXT, inConversation("Add")));
      const second = await dataOf(service.post(TEXT, inConversation(answer(first))));
      const third = await dataOf(service.post(TEXT, inConversation(answer(second))));
      assert.equal(third.text, "Three.");
      await dataOf(service.post(TEXT, inConversation("Thanks")));
      assert.deepEqual(upstream.refusals, []);
      assert.equal(upstream.requests.length, 4);
      assert.doesNotMatch(sent(upstream.requests), /skip_thought_signature_validator|not completed/);
      assert.match(sent(upstream.requests[1]), COMES_BACK[name]);
    });

    test(`POST /agents/:id/text on ${name}: system messages of the client are accepted wherever they stand, with a conversation before them`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, withMemory, rest);
      upstream.says({ text: "One." }, { text: "Two." });
      await dataOf(service.post(TEXT, inConversation("First")));
      const input = [
        { role: "system", content: "Be brief." },
        { role: "user", content: "Second" },
        { role: "system", content: "Be kind." },
        { role: "user", content: "Third" },
      ];
      const reply = await service.post(TEXT, inConversation(input));
      assert.deepEqual(upstream.refusals, []);
      assert.equal(reply.status, 200, await reply.text());
    });

    test(`POST /agents/:id/text on ${name}: a contextLimit that cuts a turn in two is accepted`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, withMemory, rest);
      upstream.says({ calls: [SUM] }, { text: "Three." }, { text: "Welcome." });
      await dataOf(service.post(TEXT, inConversation("Add")));
      const options = { conversationId: "c1", contextLimit: 1 };
      const reply = await service.post(TEXT, { input: "Thanks", options });
      assert.deepEqual(upstream.refusals, []);
      assert.equal(reply.status, 200, await reply.text());
      assert.doesNotMatch(sent(upstream.requests.at(-1)), /Three\./, "half a turn is not told");
    });

    test(`POST /agents/:id/text on ${name}: wherever an answer broke off, the next turn of the conversation is accepted`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, withMemory, rest);
      let broken = 0;
      for (let status = 0; status !== 200 && broken < 40; broken++) {
        const options = { conversationId: `c${broken}` };
        const answer = { thought: "Let me see.", text: "Three.", calls: [SUM], breaksAfter: broken + 1 };
        upstream.says({ calls: [SUM] }, answer);
        ({ status } = await service.post(TEXT, { input: "Add", options }));
        const reply = await service.post(TEXT, { input: "Thanks", options });
        assert.deepEqual(upstream.refusals, [], `after ${broken + 1} events`);
        assert.equal(reply.status, 200, `after ${broken + 1} events: ${await reply.text()}`);
      }
      assert.ok(broken > 4, "it broke off several times, and was whole at last");
    });

    test(`POST /agents/:id/object on ${name}: a schema that is closed gives an object`, async (t) => {
      const { service, upstream } = await serveStrict(t, name);
      const properties = { sum: { type: "number" }, note: { type: "string" } };
      const schema = { type: "object", properties, required: ["sum", "note"], additionalProperties: false };
      upstream.says({ text: '{"sum":3,"note":"Three."}' });
      const reply = await service.post("/agents/assistant/object", { input: "Add", schema });
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

    test(`POST /agents/:id/text on ${name}: options.output without a schema gives an object with one call`, async (t) => {
      const { service, upstream } = await serveStrict(t, name);
      upstream.says({ text: '{"sum":3}' });
      const { output } = await dataOf(service.post(TEXT, { input: "Add", options: { output: { type: "object" } } }));
      assert.deepEqual(output, { sum: 3 });
      assert.equal(upstream.requests.length, 1);
      assert.deepEqual(upstream.refusals, []);
    });

    test(`POST /agents/:id/text on ${name}: a conversation in which the assistant speaks first is accepted`, async (t) => {
      const { service, upstream } = await serveStrict(t, name);
      upstream.says({ text: "One." });
      const input = [
        { role: "assistant", parts: [{ type: "text", text: "What can I do for you?" }] },
        { role: "user", parts: [{ type: "text", text: "Count" }] },
      ];
      const reply = await service.post(TEXT, { input });
      assert.deepEqual(upstream.refusals, []);
      assert.equal(reply.status, 200, await reply.text());
    });

    test(`POST /agents/:id/text on ${name}: two calls with one id in two steps are two calls`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, withMemory, rest);
      const call = (a: number) => ({ calls: [{ name: "sum", input: { a, b: 1 }, id: "call_0" }] });
      upstream.says(call(1), call(2), { text: "Done." }, { text: "Welcome." });
      const data = await dataOf(service.post(TEXT, inConversation("Add")));
      assert.deepEqual(
        data.toolResults.map(({ output }: Loose) => output),
        [{ sum: 2 }, { sum: 3 }],
      );
      await dataOf(service.post(TEXT, inConversation("Thanks")));
      assert.deepEqual(upstream.refusals, []);
      for (const result of ['{\\"sum\\":2}', '{\\"sum\\":3}'])
        assert.ok(sent(upstream.requests.at(-1)).replaceAll('{"sum":', '{\\"sum\\":').includes(result.slice(0, -1)));
    });

    test(`POST /agents/:id/text on ${name}: tools whose names the provider refuses are called by other names`, async (t) => {
      const long = `shop.${"x".repeat(70)}`;
      const tools = {
        "shop.sum": { use: "add" },
        "shop:sum": { use: "add" },
        [long]: { use: "add" },
        "1st": { use: "add" },
      };
      const agent = { tools: Object.keys(tools), memory: "default" };
      const { service, upstream } = await serveStrict(t, name, agent, { ...rest, tools });
      upstream.says({ text: "Ready." });
      await dataOf(service.post(TEXT, inConversation("What can you do?")));
      assert.deepEqual(upstream.refusals, []);
      const names = [...sent(upstream.requests[0].tools).matchAll(/"name":"([^"]+)"/g)].map(([, found]) => found!);
      assert.equal(new Set(names).size, 4);
      upstream.says(
        { calls: names.map((tool) => ({ name: tool, input: { a: 1, b: 1 } })) },
        { text: "Done." },
        { text: "Welcome." },
      );
      const data = await dataOf(service.post(TEXT, inConversation("Add")));
      assert.deepEqual(data.toolCalls.map(({ toolName }: Loose) => toolName).sort(), Object.keys(tools).sort());
      assert.deepEqual(data.toolResults.length, 4);
      await dataOf(service.post(TEXT, inConversation("Thanks")));
      assert.deepEqual(upstream.refusals, []);
    });

    test(`POST /agents/:id/text on ${name}: an image without a media type is known by its bytes`, async (t) => {
      const { service, upstream } = await serveStrict(t, name);
      upstream.says({ text: "A dot." });
      const image = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
      const content = [
        { type: "text", text: "What is it?" },
        { type: "image", image },
      ];
      const reply = await service.post(TEXT, { input: [{ role: "user", content }] });
      assert.deepEqual(upstream.refusals, []);
      assert.equal(reply.status, 200, await reply.text());
      assert.match(sent(upstream.requests[0]), /image\/gif/);
    });
  });
}
