/**
 * Clients that run tools of their own in loops, over models whose providers want their thoughts and signatures back: each turn is
 * answered, and nothing is refused where the client sends again what it was given.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import type { Loose } from "../support/served-upstream.ts";
import { startService, type TestService } from "../support/service.ts";
import { PROJECT, STRICT, type StrictName } from "../support/strict-providers.ts";
import { type Answer, type StrictUpstream, startStrictUpstream } from "../support/strict-upstream.ts";
import { load } from "./chat.ts";

const NAMES = [
  "OpenRouter",
  "DeepSeek",
  "Gemini's chat completions",
  "Gemini",
  "Anthropic",
  "OpenAI Responses",
  "OpenAI Responses with store: false",
] as const satisfies StrictName[];
const PARAMETERS = { type: "object", properties: { place: { type: "string" } }, required: ["place"] };
const WHERE = { name: "weather", description: "The weather", parameters: PARAMETERS };
const ASKS = [{ name: "weather", input: { place: "Oslo" } }];
const ANSWERS: Answer[] = [
  { thought: "Ask first.", hidden: true, calls: ASKS },
  { thought: "Ask again.", text: "Wait.", calls: ASKS },
  { thought: "Now tell.", text: "Rain." },
  { thought: "Once more.", calls: ASKS },
  { text: "Still rain." },
];

const upstreams = new Map<StrictName, StrictUpstream>();
let service: TestService;
const ends: (() => unknown)[] = [];
const whole = { after: (end: () => unknown) => void ends.push(end) } as Loose;

after(async () => {
  for (const end of ends.reverse()) await end();
});

before(async () => {
  const providers: Record<string, object> = {};
  const agents: Record<string, object> = {};
  for (const [index, name] of NAMES.entries()) {
    const { dialect, use, model, thinking, ...more } = STRICT[name];
    const upstream = await startStrictUpstream(whole, dialect());
    upstreams.set(name, upstream);
    const connection = { baseURL: upstream.baseURL, apiKey: "test" };
    const settings = use === "openai-compatible" ? connection : { options: connection };
    providers[`up${index}`] = { use, retries: 0, ...settings, ...("provider" in more && more.provider) };
    agents[agentOf(name)] = {
      name,
      description: "Helps",
      model: `up${index}/${model}`,
      options: thinking,
      memory: false,
    };
  }
  const manifest = { name: "Test", version: "1.0.0", store: "memory:", providers, agents };
  service = await startService(whole, manifest, { project: PROJECT });
});

const agentOf = (name: (typeof NAMES)[number]) => `agent${NAMES.indexOf(name)}`;
const openai = () => new OpenAI({ apiKey: "key", baseURL: `${service.url}/v1`, maxRetries: 0 });

/** Those whose thoughts or signatures are in fields that OpenAI's chat completions do not have: many clients drop these. */
const UNSIGNED: StrictName[] = ["OpenRouter", "DeepSeek", "Gemini's chat completions", "Anthropic"];
const without = (...kept: StrictName[]) => UNSIGNED.filter((name) => !kept.includes(name));

type Ask = (agent: string, history: Loose[], text: string) => Promise<{ text: string; history: Loose[] }>;

/** Providers of which it is known that they refuse calls without thoughts: remembered from the first refusal on, whoever the client is. */
const learned = new Set<StrictName>();
/** Of a loop, answers with calls. */
const CALLING_ANSWERS = 3;

/**
 * A loop with two calls, and a second turn with one more.
 *
 * @param dropped providers whose thoughts this client does not send again
 * @param unsigned those of them of which it sends the words of thoughts, without what signs them
 */
function loops(
  client: string,
  ask: Ask,
  dropped: readonly StrictName[] = [],
  unsigned: readonly StrictName[] = [],
): void {
  for (const name of NAMES) {
    const how = dropped.includes(name) ? "in spite of the thoughts that the client drops" : "and nothing is refused";
    test(`${client} on ${name}: two calls of the client's tool and a second turn are answered, ${how}`, async () => {
      const upstream = upstreams.get(name)!;
      const known = upstream.refusals.length;
      upstream.says(...ANSWERS);
      const first = await ask(agentOf(name), [], "Weather?");
      assert.equal(first.text, "Rain.");
      const second = await ask(agentOf(name), first.history, "Again?");
      assert.equal(second.text, "Still rain.");
      const refusals = upstream.refusals.slice(known);
      const isNew = dropped.includes(name) && !learned.has(name);
      const expected = unsigned.includes(name) ? CALLING_ANSWERS : Number(isNew);
      assert.equal(refusals.length, expected, refusals.join("\n"));
      if (isNew && !unsigned.includes(name)) learned.add(name);
    });
  }
}

const chatTools = [
  { type: "function" as const, function: { ...WHERE, parse: JSON.parse, function: () => "rain" } },
] as Loose;

describe("openai 7", () => {
  for (const stream of [false, true] as const) {
    loops(
      `openai 7: runTools over POST /v1/chat/completions ${stream ? "in streams" : "in one piece"}`,
      async (model, history, text) => {
        const messages = [...history, { role: "user", content: text }];
        const runner = openai().chat.completions.runTools({ model, messages, tools: chatTools, stream } as Loose);
        return { text: String(await runner.finalContent()), history: runner.messages };
      },
      UNSIGNED,
    );

    loops(
      `openai 7: POST /v1/chat/completions ${stream ? "in streams" : "in one piece"} with messages as they came`,
      async (model, history, text) => {
        const messages = [...history, { role: "user", content: text }];
        const { completions } = openai().chat;
        const tools = [{ type: "function" as const, function: WHERE }];
        for (;;) {
          const request = { model, messages, tools };
          const reply: Loose = stream
            ? await completions.stream(request).finalChatCompletion()
            : await completions.create(request);
          const { message } = reply.choices[0];
          messages.push(message);
          if (!message.tool_calls?.length) return { text: message.content, history: messages };
          for (const { id } of message.tool_calls)
            messages.push({ role: "tool", tool_call_id: id, content: "rain" } as Loose);
        }
      },
    );

    for (const stored of [false, true])
      loops(
        `openai 7: POST /v1/responses ${stream ? "in streams" : "in one piece"} with ${stored ? "previous_response_id" : "all items"}`,
        async (model, history, text) => {
          const tools = [{ type: "function" as const, strict: false, ...WHERE }];
          let items: Loose[] = stored ? [] : history;
          let previous: string | undefined = stored ? history[0] : undefined;
          items = [...items, { role: "user", content: text }];
          for (;;) {
            const request = { model, input: items, tools, previous_response_id: previous ?? null };
            const reply: Loose = stream
              ? await openai().responses.stream(request).finalResponse()
              : await openai().responses.create(request);
            const results = reply.output
              .filter(({ type }: Loose) => type === "function_call")
              .map(({ call_id }: Loose) => ({ type: "function_call_output", call_id, output: "rain" }));
            previous = stored ? reply.id : undefined;
            items = stored ? results : [...items, ...reply.output, ...results];
            if (results.length === 0) return { text: reply.output_text, history: stored ? [reply.id] : items };
          }
        },
      );
  }
});

/** The packages for OpenAI and for servers like it, and what they drop. The newer ones know of a call no fields but OpenAI's. */
const OF_CALLS = without("DeepSeek", "Anthropic");
const SDKS = [
  { sdk: "ai-5", openaiName: "ai-sdk-openai-2", ofResponses: [] },
  {
    sdk: "ai",
    openaiName: "@ai-sdk/openai",
    ofResponses: OF_CALLS,
    compatibleName: "@ai-sdk/openai-compatible",
    ofCompatible: without("DeepSeek"),
  },
  {
    sdk: "ai-7",
    openaiName: "ai-sdk-openai-4",
    ofResponses: OF_CALLS,
    compatibleName: "ai-sdk-openai-compatible-3",
    ofCompatible: without("DeepSeek", "Gemini's chat completions"),
  },
] as const;

for (const { sdk, openaiName, ofResponses, ...more } of SDKS) {
  describe(sdk, async () => {
    const ai: Loose = await load(sdk);
    const { createOpenAI }: Loose = await import(openaiName);
    const compatible: Loose = "compatibleName" in more ? await import(more.compatibleName) : null;
    const connection = () => ({ apiKey: "key", baseURL: `${service.url}/v1` });
    const tools = {
      weather: ai.tool({ description: "The weather", inputSchema: ai.jsonSchema(PARAMETERS), execute: () => "rain" }),
    };
    const stopWhen = (ai.stepCountIs ?? ai.isStepCount)(5);
    const [responses, chat] = ["POST /v1/responses", "POST /v1/chat/completions"];
    const doors: [string, readonly StrictName[], readonly StrictName[], (agent: string) => Loose][] = [
      [`${openaiName} over ${responses}`, ofResponses, ["OpenRouter"], (agent) => createOpenAI(connection())(agent)],
      [`${openaiName} over ${chat}`, UNSIGNED, [], (agent) => createOpenAI(connection()).chat(agent)],
    ];
    if ("compatibleName" in more)
      doors.push([
        `${more.compatibleName} over ${chat}`,
        more.ofCompatible,
        ["OpenRouter", "Anthropic"],
        (agent) => compatible.createOpenAICompatible({ name: "penstock", ...connection() })(agent),
      ]);

    for (const [door, dropped, unsigned, modelOf] of doors)
      for (const method of ["generateText", "streamText"] as const)
        loops(
          `${sdk}: ${method} of ${door}`,
          async (agent, history, text) => {
            const messages = [...history, { role: "user", content: text }];
            const result = await ai[method]({ model: modelOf(agent), messages, tools, stopWhen, maxRetries: 0 });
            const told = await result.text;
            return { text: told, history: [...messages, ...(await result.response).messages] };
          },
          dropped,
          unsigned.filter((name) => dropped.includes(name)),
        );
  });
}
