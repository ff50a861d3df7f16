/** What a provider of chat completions wants back with an answer, through every door that hands it out: within a run, from clients, from the store. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { type StrictName, serveStrict } from "../support/strict-providers.ts";

const TEXT = "/agents/assistant/text";
const ASK = { name: "ask" };
const agent = { tools: ["sum", "ask"] };
const rest = { tools: { sum: { use: "add" }, ask: { client: true, description: "Asks" } }, memory: { default: {} } };
const NAMES: StrictName[] = ["OpenRouter", "DeepSeek", "Gemini's chat completions"];
const functions = [{ type: "function", function: { name: "where", parameters: { type: "object", properties: {} } } }];
const QUESTION = { role: "user", content: "Where?" };

for (const name of NAMES)
  describe(name, () => {
    test(`POST /agents/:id/text on ${name}: calls of a client's tool, with the providerMetadata of toolCalls as providerOptions, are taken back`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, agent, rest);
      upstream.says({ thought: "I ask.", calls: [ASK, ASK] }, { text: "Fine." });
      const { toolCalls } = await dataOf(service.post(TEXT, { input: [QUESTION] }));
      assert.ok(toolCalls[0].providerMetadata);
      const calls = toolCalls.map(({ providerMetadata, ...call }: Loose) => ({
        ...call,
        providerOptions: providerMetadata,
      }));
      const results = toolCalls.map(({ toolCallId, toolName }: Loose) => ({
        type: "tool-result",
        toolCallId,
        toolName,
        output: "yes",
      }));
      const input = [QUESTION, { role: "assistant", content: calls }, { role: "tool", content: results }];
      assert.equal((await dataOf(service.post(TEXT, { input }))).text, "Fine.");
      assert.deepEqual(upstream.refusals, []);
    });

    for (const stream of [false, true])
      test(`POST /v1/chat/completions on ${name}: the message of an answer is taken back as it came (stream: ${stream})`, async (t) => {
        const { service, upstream } = await serveStrict(t, name, {}, {});
        const ask = async (messages: unknown[]): Promise<Loose> => {
          const reply = await service.post("/v1/chat/completions", {
            model: "assistant",
            tools: functions,
            messages,
            stream,
          });
          if (!stream) return ((await reply.json()) as Loose).choices[0].message;
          const message: Loose = { role: "assistant", content: null };
          for (const { delta } of (await readChunks(reply)).flatMap(({ choices }) => choices)) {
            for (const { index: _, ...call } of delta.tool_calls ?? [])
              message.tool_calls = [...(message.tool_calls ?? []), call];
            for (const key of ["reasoning_details", "extra_content"]) if (delta[key]) message[key] = delta[key];
            for (const key of ["content", "reasoning_content"])
              if (delta[key]) message[key] = (message[key] ?? "") + delta[key];
          }
          return message;
        };
        const messages: Loose[] = [QUESTION];
        upstream.says(
          { thought: "I ask.", calls: [{ name: "where" }, { name: "where" }] },
          { text: "Fine." },
          { text: "Yes." },
        );
        const answer = await ask(messages);
        messages.push(answer);
        for (const { id } of answer.tool_calls) messages.push({ role: "tool", tool_call_id: id, content: "Lisbon" });
        messages.push(await ask(messages));
        assert.equal(messages.at(-1).content, "Fine.");
        messages.push({ role: "user", content: "Sure?" });
        assert.equal((await ask(messages)).content, "Yes.");
        assert.deepEqual(upstream.refusals, []);
      });

    test(`POST /v1/responses on ${name}: output items are taken back, sent again and from the store`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, {}, {});
      const tools = [{ type: "function", name: "where", parameters: { type: "object", properties: {} } }];
      const ask = async (body: object): Promise<Loose> =>
        (await service.post("/v1/responses", { model: "assistant", tools, ...body })).json();
      upstream.says({ thought: "I ask.", calls: [{ name: "where" }] }, { text: "Fine." }, { text: "Fine." });
      const { id, output } = await ask({ input: [QUESTION] });
      const result = { type: "function_call_output", call_id: output.at(-1).call_id, output: "Lisbon" };
      assert.equal((await ask({ input: [QUESTION, ...output, result] })).status, "completed");
      assert.equal((await ask({ input: [result], previous_response_id: id })).status, "completed");
      assert.deepEqual(upstream.refusals, []);
    });

    test(`POST /agents/:id/chat on ${name}: a message that a chat builds of the stream is taken back, thoughts or not`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, agent, rest);
      upstream.says({ thought: "I ask.", calls: [ASK] }, { text: "Fine." }, { text: "Fine." });
      const user = { id: "u1", role: "user", parts: [{ type: "text", text: "Where?" }] };
      const chunks = await readChunks(await service.post("/agents/assistant/chat", { input: [user] }));
      const end = chunks.find(({ type }) => type === "reasoning-end");
      const called = chunks.find(({ type }) => type === "tool-input-available");
      const { toolCallId, input, providerMetadata } = called;
      const call = {
        type: "tool-ask",
        toolCallId,
        state: "output-available",
        input,
        output: "yes",
        callProviderMetadata: providerMetadata,
      };
      const thought = {
        type: "reasoning",
        text: "I ask.",
        ...(end?.providerMetadata && { providerMetadata: end.providerMetadata }),
      };
      for (const parts of [[...(end ? [thought] : []), call], [call]]) {
        const answer = { id: "a1", role: "assistant", parts };
        assert.equal((await dataOf(service.post(TEXT, { input: [user, answer] }))).text, "Fine.");
      }
      assert.deepEqual(upstream.refusals, []);
    });

    test(`POST /agents/:id/ag-ui on ${name}: messages with their encryptedValue are taken back`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, agent, rest);
      upstream.says({ thought: "I ask.", calls: [ASK] }, { text: "Fine." });
      const user = { id: "u1", ...QUESTION };
      const ask = async (messages: Loose[]) =>
        readChunks(
          await service.post("/agents/assistant/ag-ui", {
            threadId: "t",
            runId: "r",
            protocolVersion: "1.0",
            messages,
          }),
        );
      const events = await ask([user]);
      const encrypted = (kind: string) =>
        events.find(({ type, subtype }) => type === "REASONING_ENCRYPTED_VALUE" && subtype === kind)?.encryptedValue;
      const { toolCallId: id } = events.find(({ type }) => type === "TOOL_CALL_START");
      const call = {
        id,
        type: "function",
        function: { name: "ask", arguments: "{}" },
        encryptedValue: encrypted("tool-call"),
      };
      const thought = { id: "m1", role: "reasoning", content: "I ask.", encryptedValue: encrypted("message") };
      const thoughts = events.some(({ type }) => type === "REASONING_START") ? [thought] : [];
      const messages = [
        user,
        ...thoughts,
        { id: "m2", role: "assistant", toolCalls: [call] },
        { id: "m3", role: "tool", toolCallId: id, content: "yes" },
      ];
      assert.match(JSON.stringify(await ask(messages)), /"delta":"Fin"/);
      assert.deepEqual(upstream.refusals, []);
    });
  });

const SIGNING: StrictName[] = ["Anthropic", "OpenAI Responses", "OpenAI Responses with store: false", "Gemini"];
for (const name of [...NAMES, ...SIGNING])
  for (const kept of [false, true])
    test(`POST /agents/:id/text${kept ? " of a kept run" : ""} on ${name}: toolCalls are taken back as they came, with the thoughts that led to them`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, agent, rest);
      const ask = (input: unknown, key: string) =>
        dataOf(service.post(TEXT, { input }, kept ? { "idempotency-key": key } : {}));
      upstream.says(
        { thought: "I add.", calls: [{ name: "sum", input: { a: 1, b: 2 } }] },
        { thought: "I ask.", calls: [ASK, ASK] },
        { thought: "Again.", hidden: name === "Anthropic", calls: [ASK] },
        { text: "Fine." },
      );
      const input: Loose[] = [QUESTION];
      const first = await ask(input, "1");
      assert.deepEqual(
        first.toolCalls.slice(-2).map(({ toolName }: Loose) => toolName),
        ["ask", "ask"],
      );
      const answered = ({ toolCalls, toolResults }: Loose) => {
        const done = new Set(toolResults.map(({ toolCallId }: Loose) => toolCallId));
        const open = toolCalls.filter(({ toolCallId }: Loose) => !done.has(toolCallId));
        const results = open.map(({ toolCallId, toolName }: Loose) => ({
          type: "tool-result",
          toolCallId,
          toolName,
          output: "yes",
        }));
        return [
          { role: "assistant", content: toolCalls },
          { role: "tool", content: [...toolResults, ...results] },
        ];
      };
      input.push(...answered(first));
      input.push(...answered(await ask(input, "2")));
      assert.equal((await ask(input, "3")).text, "Fine.");
      assert.deepEqual(upstream.refusals, []);
    });

for (const thoughts of [5, ["Hm."], [{ text: 1 }], [{ text: "Hm.", providerMetadata: "x" }]])
  test(`POST /agents/:id/text with ${JSON.stringify(thoughts)} as the thoughts of a call is 400 and names the field`, async (t) => {
    const { service, upstream } = await serveStrict(t, "Anthropic", agent, rest);
    const call = { type: "tool-call", toolCallId: "c1", toolName: "ask", input: {} };
    const content = [{ ...call, providerMetadata: { penstock: { thoughts } } }];
    const reply = await service.post(TEXT, { input: [QUESTION, { role: "assistant", content }, QUESTION] });
    assert.equal(reply.status, 400);
    assert.match(
      ((await reply.json()) as Loose).error,
      /^input\[1\]\.content\[0\]\.providerMetadata\.penstock\.thoughts/,
    );
    assert.equal(upstream.requests.length, 0);
  });

/** What a client sends that keeps calls and their results, and nothing that belongs to thoughts. */
const FORGETFUL: Record<string, (calls: readonly string[], question: string) => [path: string, body: Loose]> = {
  "/agents/:id/text": (calls, question) => [
    TEXT,
    {
      input: [
        { role: "user", content: question },
        ...calls.flatMap((toolCallId) => [
          { role: "assistant", content: [{ type: "tool-call", toolCallId, toolName: "ask", input: {} }] },
          { role: "tool", content: [{ type: "tool-result", toolCallId, toolName: "ask", output: "yes" }] },
        ]),
      ],
    },
  ],
  "/agents/:id/chat": (calls, question) => [
    "/agents/assistant/chat",
    {
      messages: [
        { id: "u", role: "user", parts: [{ type: "text", text: question }] },
        ...(calls.length === 0 ? [] : [{ id: "a", role: "assistant", parts: calls.flatMap(uiCall) }]),
      ],
    },
  ],
  "/agents/:id/ag-ui": (calls, question) => [
    "/agents/assistant/ag-ui",
    {
      threadId: crypto.randomUUID(),
      runId: "r",
      messages: [
        { id: "u", role: "user", content: question },
        ...calls.flatMap((id) => [
          { id: `a-${id}`, role: "assistant", toolCalls: [wireCall(id)] },
          { id: `t-${id}`, role: "tool", toolCallId: id, content: "yes" },
        ]),
      ],
    },
  ],
  "/v1/chat/completions": (calls, question) => [
    "/v1/chat/completions",
    {
      model: "assistant",
      tools: functions,
      messages: [
        { role: "user", content: question },
        ...calls.flatMap((id) => [
          { role: "assistant", content: null, tool_calls: [wireCall(id)] },
          { role: "tool", tool_call_id: id, content: "yes" },
        ]),
      ],
    },
  ],
  "/v1/responses": (calls, question) => [
    "/v1/responses",
    {
      model: "assistant",
      tools: functions.map(({ type, function: { name, parameters } }) => ({ type, name, parameters })),
      input: [
        { role: "user", content: question },
        ...calls.flatMap((call_id) => [
          { type: "function_call", call_id, name: "where", arguments: "{}" },
          { type: "function_call_output", call_id, output: "yes" },
        ]),
      ],
    },
  ],
};
const wireCall = (id: string) => ({ id, type: "function", function: { name: "where", arguments: "{}" } });
const uiCall = (toolCallId: string) => [
  { type: "step-start" },
  { type: "tool-ask", toolCallId, state: "output-available", input: {}, output: "yes" },
];
const MOST_REFUSED = 2;

for (const [door, request] of Object.entries(FORGETFUL))
  for (const name of [...NAMES, "Anthropic", "Gemini", "OpenAI Responses"] as const)
    test(`POST ${door} on ${name}: a client that keeps no thoughts is refused when it begins, and its later calls and conversations are taken at once`, async (t) => {
      const { service, upstream } = await serveStrict(t, name, agent, rest);
      const tool = door.startsWith("/v1") ? "where" : "ask";
      for (const question of ["Where?", "When?"]) {
        const calls: string[] = [];
        for (let step = 0; step < 4; step++) {
          const id = `${question.slice(0, 4)}${step}`;
          upstream.says(step === 3 ? { text: "Fine." } : { thought: "I ask.", calls: [{ name: tool, id }] });
          const [path, body] = request(calls, question);
          const reply = await service.post(path, body);
          const said = await reply.text();
          assert.equal(reply.status, 200, said);
          assert.doesNotMatch(said, /RUN_ERROR|"error":[{"]/);
          if (step === 3) assert.match(said, /Fin/);
          else
            calls.push(
              /call_\w+|toolu_\w+|tool-?[0-9a-f]{8,}\w*|"(?:toolCallId|call_id)":"([^"]+)"/.exec(said)?.[1] ?? id,
            );
        }
        assert.ok(upstream.refusals.length <= MOST_REFUSED, upstream.refusals.join("\n"));
      }
    });

test("POST /agents/:id/text on Anthropic: answers that another model has signed are refused once, and not again while their conversation grows", async (t) => {
  const { service, upstream } = await serveStrict(t, "Anthropic", agent, rest);
  const foreign = (text: string) => ({
    role: "assistant",
    content: [
      { type: "reasoning", text: "Hm.", providerOptions: { anthropic: { signature: `of another ${text}` } } },
      { type: "text", text },
    ],
  });
  const input: Loose[] = [QUESTION, foreign("Here."), QUESTION, foreign("There.")];
  for (const turn of [1, 2, 3]) {
    input.push({ role: "user", content: "Sure?" });
    upstream.says({ text: `Yes ${turn}.` });
    const { text } = await dataOf(service.post(TEXT, { input }));
    input.push({ role: "assistant", content: text });
  }
  assert.equal(upstream.refusals.length, 1, upstream.refusals.join("\n"));
  const { messages } = upstream.requests.at(-1);
  assert.deepEqual(messages[1].content, [{ type: "text", text: "Here." }]);
});

test("POST /v1/chat/completions: reasoning_content of a caller's own history goes to the provider with its messages", async (t) => {
  const { service, upstream } = await serveStrict(t, "OpenAI chat completions");
  const call = { id: "c1", type: "function", function: { name: "where", arguments: "{}" } };
  const messages = [
    QUESTION,
    { role: "assistant", content: null, reasoning_content: "I ask.", tool_calls: [call] },
    { role: "tool", tool_call_id: "c1", content: "Lisbon" },
    { role: "assistant", content: "In Lisbon.", reasoning_content: "Told." },
    { role: "assistant", content: "There.", reasoning: "So.", reasoning_details: [{ type: "x", data: "y" }] },
    { role: "user", content: "Sure?" },
  ];
  upstream.says({ text: "Fine." });
  await (await service.post("/v1/chat/completions", { model: "assistant", tools: functions, messages })).json();
  const sent: Loose[] = upstream.requests[0].messages.filter(({ role }: Loose) => role === "assistant");
  assert.deepEqual(
    sent.map(({ reasoning_content, reasoning, reasoning_details }) => [
      reasoning_content,
      reasoning,
      reasoning_details,
    ]),
    [
      ["I ask.", undefined, undefined],
      ["Told.", undefined, undefined],
      [undefined, "So.", [{ type: "x", data: "y" }]],
    ],
  );
});

async function readChunks(reply: Response): Promise<Loose[]> {
  const text = await reply.text();
  assert.equal(reply.status, 200, text);
  return [...text.matchAll(/^data: (\{.*)$/gm)].map(([, json]) => JSON.parse(json!));
}
