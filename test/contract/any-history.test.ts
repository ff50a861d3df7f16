/** Histories by chance, through every door and to several providers: each is answered, or is a 400 that names a field, and no prompt is refused. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { LONG } from "../support/at-length.ts";
import type { Loose } from "../support/served-upstream.ts";
import { type StrictName, serveStrict } from "../support/strict-providers.ts";

const NAMES: StrictName[] = ["OpenAI chat completions", "OpenAI Responses", "Anthropic", "Gemini"];
const DOORS = ["model", "ui", "stored", "chat", "responses", "ag-ui"] as const;
const MOST_LEARNED = 3;
const RUNS = LONG ? 600 : 25;

const words = fc.constantFrom("Hi", " ", "", "cut \ud83d", "\udc00", "\u{1F600}", "null");
const ids = fc.constantFrom("a", "b", "a_2", "call-3");
const inputs = fc.constantFrom<unknown>({}, { q: "\ud800" }, [1], "x", null, 5, { "k\udc00": [["\ud83d"]] });
const events = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constantFrom("user", "assistant", "system"), words }),
    fc.record({ kind: fc.constant("call"), id: ids, input: inputs }),
    fc.record({ kind: fc.constant("result"), id: ids, words }),
  ),
  { maxLength: 10 },
);
type Event = { kind: string; words?: string; id?: string; input?: unknown };

/** The body of a request with these events, which ends with words of the user, and its path. */
function requestOf(door: (typeof DOORS)[number], history: readonly Event[]): [path: string, body: Loose] {
  const all = [...history, { kind: "user", words: "Go on." }];
  const results = new Map(history.filter(({ kind }) => kind === "result").map((event) => [event.id, event.words]));
  const text = ({ kind, words: content }: Event) => ({ id: "m", role: kind, content });
  const call = ({ id, input }: Event) => ({
    id,
    type: "function",
    function: { name: "ask", arguments: typeof input === "string" ? input : JSON.stringify(input) },
  });
  switch (door) {
    case "chat":
    case "ag-ui": {
      const messages = all.map((event, index) => {
        const calls = { [door === "chat" ? "tool_calls" : "toolCalls"]: [call(event)] };
        if (event.kind === "call") return { id: `m${index}`, role: "assistant", ...calls };
        if (event.kind !== "result") return { ...text(event), id: `m${index}` };
        return { id: `m${index}`, role: "tool", tool_call_id: event.id, toolCallId: event.id, content: event.words };
      });
      return door === "chat"
        ? ["/v1/chat/completions", { model: "assistant", messages }]
        : ["/agents/assistant/ag-ui", { threadId: crypto.randomUUID(), runId: "r", messages }];
    }
    case "responses": {
      const input = all.map((event) => {
        if (event.kind === "call")
          return { type: "function_call", call_id: event.id, name: "ask", arguments: call(event).function.arguments };
        if (event.kind !== "result") return { role: event.kind, content: event.words };
        return { type: "function_call_output", call_id: event.id, output: event.words };
      });
      return ["/v1/responses", { model: "assistant", input }];
    }
    case "model": {
      const input = all.map((event) => {
        const named = { toolCallId: event.id, toolName: "ask" };
        if (event.kind === "call")
          return { role: "assistant", content: [{ type: "tool-call", ...named, input: event.input }] };
        if (event.kind !== "result") return { role: event.kind, content: event.words };
        return { role: "tool", content: [{ type: "tool-result", ...named, output: { said: event.words } }] };
      });
      return ["/agents/assistant/text", { input }];
    }
    default: {
      const input = all.flatMap((event): object[] => {
        if (event.kind === "result") return [];
        if (event.kind !== "call") return [{ role: event.kind, parts: [{ type: "text", text: event.words }] }];
        const output = results.get(event.id);
        const ended = output === undefined ? { state: "input-available" } : { state: "output-available", output };
        const thought = { type: "reasoning", text: "Hm\ud83d" };
        return [
          {
            role: "assistant",
            parts: [thought, { type: "tool-ask", toolCallId: event.id, input: event.input, ...ended }],
          },
        ];
      });
      return ["/agents/assistant/text", { input }];
    }
  }
}

for (const name of NAMES)
  test(`any history is answered by an agent on ${name}, or is a 400 that names a field, whatever door it comes through`, async (t) => {
    const tools = { ask: { client: true, description: "Asks" } };
    const { service, upstream } = await serveStrict(
      t,
      name,
      { tools: ["ask"], memory: "default" },
      { tools, memory: { default: {} } },
    );
    const send = async (door: (typeof DOORS)[number], history: readonly Event[]): Promise<void> => {
      const [path, body] = requestOf(door, history);
      if (door === "stored") {
        const of = { conversationId: crypto.randomUUID(), userId: "u" };
        await service.post("/api/memory/conversations", of);
        const messages = body.input.slice(0, -1);
        if (messages.length > 0) await (await service.post("/api/memory/save-messages", { ...of, messages })).text();
        body.input = "Go on.";
        body.options = { memory: of };
      }
      const reply = await service.post(path, body);
      const said = await reply.text();
      assert.ok(reply.status === 200 || reply.status === 400, said);
      if (reply.status === 400) assert.match(said, /\b(?:input|messages)(?:\[\d+\]| must)/, said);
      else assert.doesNotMatch(said, /RUN_ERROR/);
    };
    await fc.assert(fc.asyncProperty(fc.constantFrom(...DOORS), events, send), { numRuns: RUNS });
    // What one provider alone refuses is learned, with one refusal for each such thing.
    // Thoughts that are missing are told of with each history: they are of other models.
    const learned = upstream.refusals.filter((words) => !/thinking/.test(words));
    assert.ok(learned.length <= MOST_LEARNED, learned.join("\n"));
  });
