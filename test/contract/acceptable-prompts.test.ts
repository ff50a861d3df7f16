/** Conversations that hold what no provider takes, through every door: the next turn is answered, and the model is told the truth. */
import assert from "node:assert/strict";
import { after, before, describe, type TestContext, test } from "node:test";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";
import { STRICT_NAMES, serveStrict } from "../support/strict-providers.ts";
import type { StrictUpstream } from "../support/strict-upstream.ts";

const TOOLS = { sum: { use: "add" }, ask: { client: true, description: "Asks the user" } };
const agent = { tools: ["sum", "ask"], memory: "default" };
const rest = { tools: TOOLS, memory: { default: {} } };
const TEXT = "/agents/assistant/text";

for (const name of STRICT_NAMES)
  test(`POST /agents/:id/text on ${name}: a conversation goes on after a call whose input is a list, and the model is told what was wrong`, async (t) => {
    const { service, upstream } = await serveStrict(t, name, agent, rest);
    const say = (input: string) => dataOf(service.post(TEXT, { input, options: { conversationId: "c1" } }));
    upstream.says({ calls: [{ name: "sum", input: [{ a: 1 }] }] }, { text: "Sorry." }, { text: "Fine." });
    assert.equal((await say("Add")).text, "Sorry.");
    assert.equal((await say("Again")).text, "Fine.");
    assert.deepEqual(upstream.refusals, []);
    assert.match(JSON.stringify(upstream.requests.at(-1)), /input must be object/);
  });

describe("a provider of chat completions", () => {
  let service: TestService;
  let upstream: StrictUpstream;
  const ends: (() => unknown)[] = [];
  after(async () => {
    for (const end of ends.reverse()) await end();
  });
  before(async () => {
    const until = { after: (end: () => unknown) => void ends.push(end) } as Pick<TestContext, "after">;
    ({ service, upstream } = await serveStrict(until, "OpenAI chat completions", agent, rest));
  });

  /** The messages that the provider was sent last, without those of the system. */
  const sent = (): Loose[] => upstream.requests.at(-1).messages.filter(({ role }: Loose) => role !== "system");
  /** Calls as their arguments and results as their text, in the order in which they are sent. */
  const told = () =>
    sent().map(({ role, content, tool_calls: calls, tool_call_id: id }) =>
      calls
        ? calls.map(({ id, function: { arguments: text } }: Loose) => `${id}(${text})`).join()
        : `${role}${id ? ` ${id}` : ""}: ${content}`,
    );
  const post = async (path: string, body: object): Promise<Loose> => {
    upstream.says({ text: "Fine." });
    const refused = upstream.refusals.length;
    const reply = await service.post(path, body);
    const text = await reply.text();
    assert.equal(reply.status, 200, text);
    assert.deepEqual(upstream.refusals.slice(refused), []);
    return text;
  };
  const functions = [{ type: "function", function: { name: "where", parameters: { type: "object", properties: {} } } }];
  const flat = [{ type: "function", name: "where", parameters: { type: "object", properties: {} } }];
  const chatCall = (id: string, text = "{}") => ({
    id,
    type: "function",
    function: { name: "where", arguments: text },
  });
  const LATE = ["user: Where?", "c1({})", "tool c1: Lisbon", "user: Hurry."];

  test("POST /v1/chat/completions: a result that stands behind a message of the user, or before its call, is told behind its call", async () => {
    const call = { role: "assistant", content: null, tool_calls: [chatCall("c1")] };
    const result = { role: "tool", tool_call_id: "c1", content: "Lisbon" };
    const [asks, hurries] = ["Where?", "Hurry."].map((content) => ({ role: "user", content }));
    for (const messages of [
      [asks, call, hurries, result],
      [asks, result, call, hurries],
    ]) {
      await post("/v1/chat/completions", { model: "assistant", tools: functions, messages });
      assert.deepEqual(told(), LATE);
    }
  });

  test("POST /v1/responses: an output that stands behind a message of the user, or before its call, is told behind its call", async () => {
    const call = { type: "function_call", call_id: "c1", name: "where", arguments: "{}" };
    const output = { type: "function_call_output", call_id: "c1", output: "Lisbon" };
    const [asks, hurries] = ["Where?", "Hurry."].map((content) => ({ role: "user", content }));
    for (const input of [
      [asks, call, hurries, output],
      [asks, output, call, hurries],
    ]) {
      await post("/v1/responses", { model: "assistant", tools: flat, input });
      assert.deepEqual(told(), LATE);
    }
  });

  test("POST /v1/responses: an output in a later response, behind a message of the user, is told behind its call", async () => {
    upstream.says({ calls: [{ name: "where", id: "c1" }] });
    const first: Loose = await (
      await service.post("/v1/responses", { model: "assistant", tools: flat, input: "Where?" })
    ).json();
    const output = { type: "function_call_output", call_id: first.output.at(-1).call_id, output: "Lisbon" };
    const input = [{ role: "user", content: "Hurry." }, output];
    await post("/v1/responses", { model: "assistant", tools: flat, previous_response_id: first.id, input });
    assert.deepEqual(told(), LATE);
  });

  test("POST /agents/:id/ag-ui: a result that stands behind a message of the user, or before its call, is told behind its call", async () => {
    const call = { id: "m2", role: "assistant", toolCalls: [chatCall("c1")] };
    const result = { id: "m3", role: "tool", toolCallId: "c1", content: "Lisbon" };
    const [asks, hurries] = ["Where?", "Hurry."].map((content, index) => ({ id: `u${index}`, role: "user", content }));
    for (const [index, messages] of [
      [asks, call, hurries, result],
      [asks, result, call, hurries],
    ].entries()) {
      const body = { threadId: `ag${index}`, runId: "r1", tools: [{ name: "where", description: "" }], messages };
      await post("/agents/assistant/ag-ui", body);
      assert.deepEqual(told(), LATE);
    }
  });

  test("POST /agents/:id/text: a result that stands behind a message of the user, or before its call, is told behind its call", async () => {
    const named = { toolCallId: "c1", toolName: "ask" };
    const call = { role: "assistant", content: [{ type: "tool-call", ...named, input: {} }] };
    const result = { role: "tool", content: [{ type: "tool-result", ...named, output: "Lisbon" }] };
    const [asks, hurries] = ["Where?", "Hurry."].map((content) => ({ role: "user", content }));
    for (const input of [
      [asks, call, hurries, result],
      [asks, result, call, hurries],
    ]) {
      await post(TEXT, { input });
      assert.deepEqual(told(), LATE);
    }
  });

  test("a result without a call anywhere is a 400 that names it, on /text, /v1/chat/completions, /v1/responses and /ag-ui", async () => {
    const user = { id: "u", role: "user", content: "Hi" };
    const part = { type: "tool-result", toolCallId: "c9", toolName: "ask", output: "x" };
    for (const [path, body, named] of [
      [TEXT, { input: [{ role: "tool", content: [part] }, user] }, /input\[0\]\.content\[0\]\.toolCallId/],
      [
        "/v1/chat/completions",
        { messages: [user, { role: "tool", tool_call_id: "c9", content: "x" }] },
        /messages\[1\]\.tool_call_id/,
      ],
      [
        "/v1/responses",
        { input: [user, { type: "function_call_output", call_id: "c9", output: "x" }] },
        /input\[1\]\.call_id/,
      ],
      [
        "/agents/assistant/ag-ui",
        { threadId: "t", runId: "r", messages: [user, { id: "m", role: "tool", toolCallId: "c9", content: "x" }] },
        /messages\[1\]\.toolCallId/,
      ],
    ] as const) {
      const reply = await service.post(path, { model: "assistant", ...body });
      assert.equal(reply.status, 400);
      assert.match(await reply.text(), named);
    }
  });

  for (const broken of [
    '{"q": "x',
    "[1]",
    "null",
    '"x"',
    "",
    " ",
    "{}".repeat(3),
    `${"[".repeat(200)}${"]".repeat(200)}`,
  ])
    test(`arguments ${JSON.stringify(broken.slice(0, 20))} of a caller's earlier call are told as {} on /v1/chat/completions, /v1/responses and /ag-ui`, async () => {
      const user = { id: "u1", role: "user", content: "Hi" };
      const next = { id: "u2", role: "user", content: "Go on." };
      const result = { role: "tool", tool_call_id: "c1", content: "not JSON" };
      const messages = [user, { role: "assistant", content: null, tool_calls: [chatCall("c1", broken)] }, result, next];
      const input = [
        user,
        { type: "function_call", call_id: "c1", name: "where", arguments: broken },
        { type: "function_call_output", call_id: "c1", output: "not JSON" },
        next,
      ];
      const thread = [
        user,
        { id: "m2", role: "assistant", toolCalls: [chatCall("c1", broken)] },
        { id: "m3", role: "tool", toolCallId: "c1", content: "not JSON" },
        next,
      ];
      for (const [path, body] of [
        ["/v1/chat/completions", { tools: functions, messages }],
        ["/v1/responses", { tools: flat, input }],
        ["/agents/assistant/ag-ui", { threadId: `b${broken.length}`, runId: "r1", messages: thread }],
      ] as const) {
        await post(path, { model: "assistant", ...body });
        assert.deepEqual(told(), ["user: Hi", "c1({})", "tool c1: not JSON", "user: Go on."]);
      }
    });

  test("inputs of calls that are no objects, in UI and model messages, posted and stored, are told as {}", async () => {
    const text = (words: string) => [{ type: "text", text: words }];
    for (const [index, input] of [[{ a: 1 }], "x", 7, null].entries()) {
      const part = {
        type: "tool-sum",
        toolCallId: "c1",
        state: "output-error",
        input,
        errorText: "input must be object",
      };
      const ui = [
        { id: "u1", role: "user", parts: text("Hi") },
        { id: "a1", role: "assistant", parts: [{ type: "step-start" }, part] },
      ];
      const named = { toolCallId: "c1", toolName: "sum" };
      const output = { type: "error-text", value: "input must be object" };
      const models = [
        { role: "user", content: "Hi" },
        { role: "assistant", content: [{ type: "tool-call", ...named, input }] },
        { role: "tool", content: [{ type: "tool-result", ...named, output }] },
      ];
      const said = ["user: Hi", "c1({})", "tool c1: input must be object", "user: Go on."];
      await post(TEXT, { input: [...ui, { role: "user", content: "Go on." }] });
      assert.deepEqual(told(), said);
      await post(TEXT, { input: [...models, { role: "user", content: "Go on." }] });
      assert.deepEqual(told(), said);
      const conversationId = `stored${index}`;
      await service.post("/api/memory/conversations", { conversationId, userId: "u" });
      const saved = await service.post("/api/memory/save-messages", {
        conversationId,
        userId: "u",
        messages: ui.map(({ id: _, ...each }) => each),
      });
      assert.equal(saved.status, 200, await saved.text());
      await post(TEXT, { input: "Go on.", options: { memory: { conversationId, userId: "u" } } });
      assert.deepEqual(told(), said);
    }
  });

  test("text that was cut within a character, posted and stored, reaches the provider as well-formed text", async () => {
    const cut = "cut \ud83d";
    await post(TEXT, { input: cut });
    const options = { memory: { conversationId: "cut", userId: "u" } };
    await service.post("/api/memory/conversations", { conversationId: "cut", userId: "u" });
    const messages = [
      { role: "user", content: cut },
      { role: "assistant", content: cut },
    ];
    const saved = await service.post("/api/memory/save-messages", { conversationId: "cut", userId: "u", messages });
    assert.equal(saved.status, 200, await saved.text());
    await post(TEXT, { input: "Go on.", options });
    await post("/v1/chat/completions", { model: "assistant", messages: [{ role: "user", content: cut }] });
    assert.deepEqual(told(), ["user: cut \ufffd"]);
  });

  test("stored messages that say nothing are not told", async () => {
    const of = { conversationId: "blank", userId: "u" };
    await service.post("/api/memory/conversations", of);
    const messages = [
      { role: "user", content: " " },
      { role: "assistant", content: "\n" },
      { role: "user", parts: [{ type: "text", text: "" }] },
      { role: "assistant", parts: [{ type: "reasoning", text: "Hm" }] },
    ];
    const saved = await service.post("/api/memory/save-messages", { ...of, messages });
    assert.equal(saved.status, 200, await saved.text());
    await post(TEXT, { input: "Go on.", options: { memory: of } });
    assert.deepEqual(told(), ["user: Go on."]);
  });
});
