/** Answers of chat completions as servers send them, byte for byte, for every reader of the format. */

export interface Recording {
  readonly title: string;
  readonly body: string;
  /** Default: 200. */
  readonly status?: number;
  /** Default: text/event-stream. */
  readonly type?: string;
  /** The connection breaks after the body. */
  readonly cut?: true;
}

const HEAD = { id: "chatcmpl-B9MBs8", object: "chat.completion.chunk", created: 1741569952, model: "gpt-4o-mini" };
const USAGE = { prompt_tokens: 19, completion_tokens: 10, total_tokens: 29 };
const DETAILS = {
  ...USAGE,
  prompt_tokens_details: { cached_tokens: 8, audio_tokens: 0 },
  completion_tokens_details: { reasoning_tokens: 4, accepted_prediction_tokens: 2, rejected_prediction_tokens: 1 },
};
const DONE = "data: [DONE]\n\n";

const event = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`;
const chunk = (delta: unknown, finish: string | null = null, rest: object = {}): string =>
  event({ ...HEAD, choices: [{ index: 0, delta, finish_reason: finish }], ...rest });
const role = chunk({ role: "assistant", content: "" });
const text = (content: string): string => chunk({ content });
const stop = chunk({}, "stop");
const usage = (counts: object = USAGE): string => event({ ...HEAD, choices: [], usage: counts });
const hello = role + text("Hello") + text(", ") + text("world") + stop + usage() + DONE;

interface Call {
  index?: number | null;
  id?: string | null;
  type?: string;
  function: { name?: string | null; arguments?: string | null };
  extra_content?: object;
}
const call = (...tool_calls: Call[]): string => chunk({ tool_calls });
const begin = (index: number, id: string, name: string, args = ""): string =>
  call({ index, id, type: "function", function: { name, arguments: args } });
const more = (index: number, args: string): string => call({ index, function: { arguments: args } });
const calls = chunk({}, "tool_calls") + usage() + DONE;

const completion = (message: object, rest: object = {}, finish = "stop"): string =>
  JSON.stringify({
    ...HEAD,
    object: "chat.completion",
    choices: [{ index: 0, message: { role: "assistant", ...message }, finish_reason: finish }],
    usage: USAGE,
    ...rest,
  });

const failed = { message: "The server had an error", type: "server_error", param: null, code: null };
const LONG = "Lorem ipsum dolor sit amet, consectetur adipiscing elit. ".repeat(400);

export const RECORDINGS: readonly Recording[] = [
  // Text
  { title: "text", body: hello },
  { title: "text in one event", body: chunk({ role: "assistant", content: "Hello" }, "stop") + DONE },
  {
    title: "text of 200 deltas",
    body: role + Array.from({ length: 200 }, (_, i) => text(` w${i}`)).join("") + stop + DONE,
  },
  { title: "one delta of 22 KB", body: role + text(LONG) + stop + DONE },
  {
    title: "characters of two, three and four bytes",
    body: role + text("Grüße ") + text("東京 ") + text("👋🏽") + stop + DONE,
  },
  { title: "escaped characters", body: role + text('"\\\n\t\u0000 \u2028') + text('a"b') + stop + DONE },
  {
    title: "a surrogate pair in escapes",
    body: `${role}data: {"choices":[{"index":0,"delta":{"content":"\\ud83d\\ude00"},"finish_reason":null}]}\n\n${stop}${DONE}`,
  },
  {
    title: "deltas that look like the envelope",
    body: role + text('","finish_reason":"stop"') + text("content") + text('"content":"') + stop + DONE,
  },
  {
    title: "empty and null deltas between texts",
    body: role + text("a") + text("") + chunk({ content: null }) + chunk({}) + text("b") + stop + DONE,
  },
  { title: "no text at all", body: role + stop + usage() + DONE },
  { title: "an answer cut by max_tokens", body: role + text("Once upon") + chunk({}, "length") + DONE },
  { title: "an answer stopped by the content filter", body: role + text("I") + chunk({}, "content_filter") + DONE },
  { title: "an unknown finish reason", body: role + text("x") + chunk({}, "surprise") + DONE },
  { title: "the finish reason with the last text", body: role + text("a") + chunk({ content: "b" }, "stop") + DONE },
  {
    title: "text as a list of parts",
    body:
      chunk({
        content: [
          { type: "text", text: "Hel" },
          { type: "text", text: "lo" },
        ],
      }) +
      stop +
      DONE,
  },
  {
    title: "obfuscation in every event",
    body:
      role +
      ["a", "b", "c", "d", "e"]
        .map((each) => chunk({ content: each }, null, { obfuscation: each.repeat(7) }))
        .join("") +
      stop +
      DONE,
  },
  {
    title: "logprobs in every event",
    body:
      role +
      ["a", "b"]
        .map((each) =>
          event({
            ...HEAD,
            choices: [
              {
                index: 0,
                delta: { content: each },
                logprobs: { content: [{ token: each, logprob: -0.1 }] },
                finish_reason: null,
              },
            ],
          }),
        )
        .join("") +
      stop +
      DONE,
  },
  {
    title: "a changing time in every event",
    body:
      role +
      [1, 2, 3, 4, 5].map((created) => chunk({ content: `t${created}` }, null, { created })).join("") +
      stop +
      DONE,
  },
  {
    title: "Azure: a first event of content filters without choices",
    body:
      event({ id: "", object: "", created: 0, model: "", choices: [], prompt_filter_results: [{ prompt_index: 0 }] }) +
      hello,
  },
  {
    title: "no id, model or time",
    body:
      event({ choices: [{ index: 0, delta: { content: "a" }, finish_reason: null }] }) +
      event({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }) +
      DONE,
  },
  // Framing
  { title: "lines that end with CR LF", body: hello.replaceAll("\n", "\r\n") },
  { title: "lines that end with CR", body: hello.replaceAll("\n", "\r") },
  {
    title: "a comment before each event",
    body: `: OPENROUTER PROCESSING\n\n${hello.replaceAll("data:", ": ping\n\ndata:")}`,
  },
  { title: "data without a space after the colon", body: hello.replaceAll("data: ", "data:") },
  {
    title: "event, id and retry beside data",
    body: hello.replaceAll("data: ", "event: message\nid: 7\nretry: 100\ndata: "),
  },
  { title: "a byte order mark", body: `\ufeff${hello}` },
  {
    title: "an event of several data lines",
    body:
      role +
      `data: {"choices":[{"index":0,\ndata: "delta":{"content":"split"},"finish_reason":null}]}\n\n` +
      stop +
      DONE,
  },
  { title: "three empty lines between events", body: hello.replaceAll("\n\n", "\n\n\n\n") },
  { title: "no [DONE]", body: role + text("a") + stop + usage() },
  { title: "more after [DONE]", body: `${hello}${text("too late")}` },
  { title: "an empty event", body: `${role}data:\n\n${text("a")}${stop}${DONE}` },
  { title: "no empty line after the last event", body: `${role}${text("a")}${stop}data: [DONE]` },
  { title: "no end of line after the only finish reason", body: role + text("a") + stop.trimEnd() },
  // Reasoning
  {
    title: "reasoning_content",
    body: role + chunk({ reasoning_content: "let " }) + chunk({ reasoning_content: "me" }) + text("42") + stop + DONE,
  },
  { title: "reasoning", body: role + chunk({ reasoning: "let me" }) + text("42") + stop + DONE },
  {
    title: "reasoning as a list of parts",
    body:
      chunk({
        content: [
          {
            type: "thinking",
            thinking: [
              { type: "text", text: "let " },
              { type: "text", text: "me" },
            ],
          },
        ],
      }) +
      chunk({ content: [{ type: "text", text: "42" }] }) +
      stop +
      DONE,
  },
  { title: "reasoning and text in one delta", body: chunk({ reasoning_content: "hm", content: "42" }) + stop + DONE },
  {
    title: "reasoning in both fields",
    body: chunk({ reasoning_content: "a", reasoning: "b" }) + text("42") + stop + DONE,
  },
  {
    title: "reasoning with content null and text with reasoning null",
    body:
      chunk({ content: null, reasoning_content: "hm" }) +
      chunk({ content: "42", reasoning_content: null }) +
      stop +
      DONE,
  },
  { title: "reasoning after text", body: text("a") + chunk({ reasoning_content: "hm" }) + text("b") + stop + DONE },
  { title: "reasoning alone", body: chunk({ reasoning_content: "hm" }) + stop + DONE },
  {
    title: "reasoning before a tool call",
    body: chunk({ reasoning_content: "hm" }) + begin(0, "call_1", "add", "{}") + calls,
  },
  // Tools
  { title: "a tool call in deltas", body: role + begin(0, "call_1", "add") + more(0, '{"a":') + more(0, "1}") + calls },
  { title: "a tool call in one delta", body: begin(0, "call_1", "add", '{"a":1}') + calls },
  {
    title: "two tool calls one after the other",
    body: begin(0, "call_1", "add") + more(0, "{}") + begin(1, "call_2", "now") + more(1, '{"z":2}') + calls,
  },
  {
    title: "two tool calls whose deltas alternate",
    body:
      begin(0, "call_1", "add") +
      begin(1, "call_2", "now") +
      more(0, '{"a"') +
      more(1, "{") +
      more(0, ":1}") +
      more(1, "}") +
      calls,
  },
  {
    title: "two tool calls in one event",
    body:
      call(
        { index: 0, id: "a", function: { name: "add", arguments: "{}" } },
        { index: 1, id: "b", function: { name: "now", arguments: "{}" } },
      ) + calls,
  },
  {
    title: "tool calls that come out of order",
    body: begin(1, "call_2", "now", "{}") + begin(0, "call_1", "add", "{}") + calls,
  },
  {
    title: "tool calls without an index",
    body:
      call({ id: "a", function: { name: "add", arguments: '{"a":1}' } }) +
      call({ id: "b", function: { name: "now", arguments: "{}" } }) +
      calls,
  },
  {
    title: "two tool calls without an index in one event",
    body:
      call(
        { id: "a", function: { name: "add", arguments: "{}" } },
        { id: "b", function: { name: "add", arguments: '{"b":2}' } },
      ) + calls,
  },
  { title: "a tool call without an id", body: call({ index: 0, function: { name: "add", arguments: "{}" } }) + calls },
  {
    title: "two tool calls without ids",
    body:
      call({ index: 0, function: { name: "add", arguments: "{}" } }) +
      call({ index: 1, function: { name: "add", arguments: "{}" } }) +
      calls,
  },
  {
    title: "a tool call with an empty id",
    body: call({ index: 0, id: "", function: { name: "add", arguments: "{}" } }) + calls,
  },
  {
    title: "a tool call without index or id, in deltas",
    body:
      call({ function: { name: "add", arguments: "" } }) +
      call({ function: { arguments: '{"a":' } }) +
      call({ function: { arguments: "1}" } }) +
      calls,
  },
  { title: "tool calls that all have index 0", body: begin(0, "a", "add", "{}") + begin(0, "b", "now", "{}") + calls },
  {
    title: "two calls of one tool that both have index 0",
    body: begin(0, "a", "add", '{"a":1}') + begin(0, "b", "add", '{"a":2}') + calls,
  },
  {
    title: "two tool calls with the same id",
    body: begin(0, "call_0", "add", "{}") + begin(1, "call_0", "add", '{"b":1}') + calls,
  },
  {
    title: "the id and the name in every delta of a call",
    body: begin(0, "a", "add", '{"a"') + begin(0, "a", "add", ":1") + begin(0, "a", "add", "}") + calls,
  },
  {
    title: "a name that comes after the id",
    body:
      call({ index: 0, id: "a", function: {} }) + call({ index: 0, function: { name: "add" } }) + more(0, "{}") + calls,
  },
  {
    title: "arguments before the name",
    body:
      call({ index: 0, id: "a", function: { arguments: '{"a":' } }) +
      call({ index: 0, function: { name: "add", arguments: "1}" } }) +
      calls,
  },
  { title: "a tool call without arguments", body: call({ index: 0, id: "a", function: { name: "now" } }) + calls },
  {
    title: "arguments that are null",
    body: call({ index: 0, id: "a", function: { name: "now", arguments: null } }) + calls,
  },
  { title: "text before a tool call", body: role + text("I will add.") + begin(0, "a", "add", "{}") + calls },
  { title: "a tool call with the finish reason stop", body: begin(0, "a", "add", "{}") + stop + DONE },
  {
    title: "a tool call with the finish reason in its event",
    body:
      chunk({ tool_calls: [{ index: 0, id: "a", function: { name: "add", arguments: "{}" } }] }, "tool_calls") + DONE,
  },
  {
    title: "Gemini: a tool call with a thought signature",
    body:
      call({
        index: 0,
        id: "a",
        function: { name: "add", arguments: "{}" },
        extra_content: { google: { thought_signature: "c2ln" } },
      }) + calls,
  },
  { title: "an empty list of tool calls", body: chunk({ content: "a", tool_calls: [] }) + stop + DONE },
  { title: "the finish reason function_call", body: role + text("x") + chunk({}, "function_call") + DONE },
  // Usage
  { title: "usage with details", body: role + text("a") + stop + usage(DETAILS) + DONE },
  {
    title: "usage in the event with the finish reason",
    body: role + text("a") + chunk({}, "stop", { usage: USAGE }) + DONE,
  },
  {
    title: "usage in the first event",
    body:
      chunk({ role: "assistant", content: "" }, null, { usage: { ...USAGE, completion_tokens: 0 } }) +
      text("a") +
      stop +
      DONE,
  },
  {
    title: "usage in every event, growing",
    body:
      [1, 2, 3].map((n) => chunk({ content: `${n}` }, null, { usage: { ...USAGE, completion_tokens: n } })).join("") +
      stop +
      DONE,
  },
  {
    title: "usage null in every event but the last",
    body: chunk({ content: "a" }, null, { usage: null }) + chunk({}, "stop", { usage: null }) + usage() + DONE,
  },
  { title: "no usage", body: role + text("a") + stop + DONE },
  {
    title: "usage with null details",
    body:
      role +
      text("a") +
      stop +
      usage({ ...USAGE, prompt_tokens_details: null, completion_tokens_details: null }) +
      DONE,
  },
  {
    title: "DeepSeek: usage with its own count of cached tokens",
    body:
      role + text("a") + stop + usage({ ...USAGE, prompt_cache_hit_tokens: 16, prompt_cache_miss_tokens: 3 }) + DONE,
  },
  { title: "usage without choices", body: role + text("a") + stop + event({ ...HEAD, usage: USAGE }) + DONE },
  // Refusals
  {
    title: "a refusal",
    body:
      chunk({ role: "assistant", content: null, refusal: "" }) +
      chunk({ refusal: "I cannot " }) +
      chunk({ refusal: "help." }) +
      stop +
      DONE,
  },
  {
    title: "refusal null in every delta",
    body: chunk({ role: "assistant", content: "a", refusal: null }) + stop + DONE,
  },
  // Faults
  { title: "cut in mid-stream", body: role + text("half an ans"), cut: true },
  { title: "ended in mid-stream", body: role + text("half an ans") },
  { title: "ended in mid-stream after empty finish reasons", body: chunk({ content: "half" }, "") },
  { title: "cut inside of an event", body: role + text("half") + text("an answer").slice(0, 60), cut: true },
  { title: "an error event first", body: event({ error: failed }) + DONE },
  { title: "an error event after text", body: role + text("a") + event({ error: failed }) + DONE },
  { title: "an error event whose error is a text", body: role + event({ error: "overloaded" }) + DONE },
  { title: "an error event by name", body: `${role}event: error\n${event({ error: failed })}` },
  { title: "an event that is not JSON", body: `${role}${text("a")}data: {"choices": [\n\n${stop}${DONE}` },
  { title: "an event that is null", body: `${role}data: null\n\n${stop}${DONE}` },
  { title: "only [DONE]", body: DONE },
  { title: "nothing", body: "" },
  { title: "an error object with status 200", body: JSON.stringify({ error: failed }), type: "application/json" },
  {
    title: "a page of HTML with status 200",
    body: "<!DOCTYPE html><html><body>Sign in</body></html>",
    type: "text/html",
  },
  { title: "another JSON object with status 200", body: '{"hello":"world"}', type: "application/json" },
  { title: "an error with status 500", body: JSON.stringify({ error: failed }), type: "application/json", status: 500 },
  { title: "a page of HTML with status 502", body: "<html>Bad gateway</html>", type: "text/html", status: 502 },
  // Answers in one piece
  { title: "a completion in one piece", body: completion({ content: "Hello" }), type: "application/json" },
  {
    title: "a completion in one piece after white space",
    body: `\n\n  ${completion({ content: "Hello" })}\n`,
    type: "application/json",
  },
  {
    title: "a completion in one piece with reasoning and tool calls",
    body: completion(
      {
        content: null,
        reasoning_content: "hm",
        tool_calls: [{ id: "a", type: "function", function: { name: "add", arguments: "{}" } }],
      },
      {},
      "tool_calls",
    ),
    type: "application/json",
  },
  { title: "a refusal in one piece", body: completion({ content: null, refusal: "No." }), type: "application/json" },
  // Peculiar
  { title: "a role that is not the assistant's", body: chunk({ role: "model", content: "a" }) + stop + DONE },
  { title: "choices null", body: role + event({ ...HEAD, choices: null }) + text("a") + stop + DONE },
  {
    title: "a finish reason that is empty until the end",
    body: chunk({ content: "a" }, "") + chunk({ content: "b" }, "") + stop + DONE,
  },
  {
    title: "a tool call whose arguments are an object",
    body:
      event({
        ...HEAD,
        choices: [
          {
            index: 0,
            delta: { tool_calls: [{ index: 0, id: "a", function: { name: "add", arguments: { a: 1 } } }] },
            finish_reason: null,
          },
        ],
      }) + calls,
  },
  { title: "a tool call without a name", body: call({ index: 0, id: "a", function: { arguments: "{}" } }) + calls },
];
