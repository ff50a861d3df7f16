/**
 * `npm run test:clients`: programs that people write against OpenAI, with its address changed: LangChain, OpenAI Agents and the newest `openai`,
 * over Chat Completions and Responses, whole and streamed, before agents whose providers enforce their rules. Each calls a tool of its own,
 * goes on with its result, and asks again in the same conversation. They are fetched from the npm registry and kept in node_modules/.cache.
 * Prints a table, and exits with 1 when one of them fails.
 */
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { fetchPackages } from "../support/fetched.ts";
import type { Loose } from "../support/served-upstream.ts";
import { serveStrict } from "../support/strict-providers.ts";

const VERSIONS = {
  "@langchain/openai": "1.6.0",
  "@langchain/core": "1.4.0",
  "@openai/agents": "0.20.0",
  openai: "7.59.0",
  zod: "4.6.7",
};
const packages = Object.entries(VERSIONS).map(([name, version]) => `${name}@${version}`);
const require = createRequire(join(fetchPackages("openai-clients", ...packages), "here.js"));
const load = (name: string): Promise<Loose> => import(pathToFileURL(require.resolve(name)).href);

const [{ ChatOpenAI }, { BaseLanguageModel }, messages, { tool }, agents, { OpenAI }, { z }] = await Promise.all([
  load("@langchain/openai"),
  load("@langchain/core/language_models/base"),
  load("@langchain/core/messages"),
  load("@langchain/core/tools"),
  load("@openai/agents"),
  load("openai"),
  load("zod"),
]);

// LangChain counts the tokens of streams with a table that it loads from the network.
BaseLanguageModel.prototype.getNumTokens = async () => 1;

const QUESTIONS = ["Weather?", "Again?"];
const SCHEMA = z.object({ place: z.string() });
const DESCRIPTION = { name: "weather", description: "The weather" };
const ASKS = [{ name: "weather", input: { place: "Oslo" } }];
/** What the model answers to the two questions. */
const ANSWERS = [{ thought: "Ask first.", calls: ASKS }, { text: "Rain." }, { calls: ASKS }, { text: "Still rain." }];

interface Way {
  base: string;
  api: "chat_completions" | "responses";
  streams: boolean;
}

/** Asks both questions. Returns the texts of the answers. */
type Program = (way: Way) => Promise<string[]>;

const langchain: Program = async ({ base, api, streams }) => {
  const model = new ChatOpenAI({
    model: "assistant",
    apiKey: "none",
    configuration: { baseURL: base },
    useResponsesApi: api === "responses",
    streaming: streams,
    maxRetries: 0,
  });
  const bound = model.bindTools([tool(async () => "rain", { ...DESCRIPTION, schema: SCHEMA })]);
  const conversation: Loose[] = [];
  const texts: string[] = [];
  for (const question of QUESTIONS) {
    conversation.push(new messages.HumanMessage(question));
    for (;;) {
      const reply = await bound.invoke(conversation);
      conversation.push(reply);
      for (const { id } of reply.tool_calls)
        conversation.push(new messages.ToolMessage({ content: "rain", tool_call_id: id }));
      if (reply.tool_calls.length > 0) continue;
      texts.push(reply.text);
      break;
    }
  }
  return texts;
};

const openaiAgents: Program = async ({ base, api, streams }) => {
  const openAIClient = new OpenAI({ apiKey: "none", baseURL: base, maxRetries: 0 });
  const modelProvider = new agents.OpenAIProvider({ openAIClient, useResponses: api === "responses" });
  const runner = new agents.Runner({ modelProvider, tracingDisabled: true });
  const weather = agents.tool({ ...DESCRIPTION, parameters: SCHEMA, execute: async () => "rain" });
  const agent = new agents.Agent({ name: "a", model: "assistant", instructions: "Help.", tools: [weather] });
  let history: Loose[] = [];
  const texts: string[] = [];
  for (const question of QUESTIONS) {
    const result = await runner.run(agent, [...history, agents.user(question)], { stream: streams });
    if (streams) await result.completed;
    history = result.history;
    texts.push(result.finalOutput);
  }
  return texts;
};

const openai: Program = async ({ base, api, streams }) => {
  const client = new OpenAI({ apiKey: "none", baseURL: base, maxRetries: 0 });
  const parameters = z.toJSONSchema(SCHEMA);
  const conversation: Loose[] = [];
  const texts: string[] = [];
  for (const question of QUESTIONS) {
    conversation.push({ role: "user", content: question });
    if (api === "chat_completions") {
      const definition = { ...DESCRIPTION, parameters, parse: JSON.parse, function: async () => "rain" };
      const request = {
        model: "assistant",
        messages: conversation,
        tools: [{ type: "function", function: definition }],
      };
      const runner = client.chat.completions.runTools({ ...request, stream: streams });
      texts.push(await runner.finalContent());
      conversation.splice(0, Number.POSITIVE_INFINITY, ...runner.messages);
      continue;
    }
    for (;;) {
      const tools = [{ type: "function", ...DESCRIPTION, parameters, strict: false }];
      const request = { model: "assistant", input: conversation, tools };
      const reply = streams
        ? await client.responses.stream(request).finalResponse()
        : await client.responses.create(request);
      conversation.push(...reply.output);
      const asked = reply.output.filter(({ type }: Loose) => type === "function_call");
      for (const { call_id } of asked) conversation.push({ type: "function_call_output", call_id, output: "rain" });
      if (asked.length > 0) continue;
      texts.push(reply.output_text);
      break;
    }
  }
  return texts;
};

const PROGRAMS = { "@langchain/openai": langchain, "@openai/agents": openaiAgents, openai };
const PROVIDERS = ["OpenAI Responses", "Anthropic", "Gemini", "DeepSeek"] as const;

const ends: (() => unknown)[] = [];
const context = { after: (end: () => unknown) => void ends.push(end) };
const rows: Record<string, string>[] = [];
for (const provider of PROVIDERS) {
  const { service, upstream } = await serveStrict(context as Loose, provider);
  const base = `${service.url}/v1`;
  for (const [name, program] of Object.entries(PROGRAMS))
    for (const api of ["chat_completions", "responses"] as const)
      for (const streams of [false, true]) {
        upstream.says(...ANSWERS);
        const texts = await program({ base, api, streams }).catch((error: Error) => [String(error.message)]);
        const result = texts.join(" ") === "Rain. Still rain." ? "passed" : `FAILED: ${texts.join(" ").slice(0, 200)}`;
        rows.push({ client: name, api, manner: streams ? "streamed" : "whole", provider, result });
      }
}
for (const end of ends) await end();

console.table(
  Object.keys(PROGRAMS).map((name) => {
    const own = rows.filter(({ client }) => client === name);
    const passed = own.filter(({ result }) => result === "passed").length;
    return { client: name, version: VERSIONS[name as keyof typeof VERSIONS], passed, of: own.length };
  }),
);
const failed = rows.filter(({ result }) => result !== "passed");
if (failed.length > 0) console.table(failed);
process.exit(failed.length > 0 ? 1 : 0);
