/** Histories by chance, through every door and to several providers: each is answered, or is a 400 that names a field, and no prompt is refused. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { LONG } from "../support/at-length.ts";
import type { Loose } from "../support/served-upstream.ts";
import { type StrictName, serveStrict } from "../support/strict-providers.ts";

const NAMES: StrictName[] = ["OpenAI chat completions", "OpenAI Responses", "Anthropic", "Gemini"];
const DOORS = ["model", "ui", "stored", "chat", "responses", "ag-ui"] as const;
/** Of refusals in the same words: some of them do not say which type of files they are about. */
const MOST_LEARNED = 3;
const RUNS = LONG ? 1000 : 50;

const words = fc.constantFrom("Hi", " ", "", "cut \ud83d", "\udc00", "\u{1F600}", "null");
const ids = fc.constantFrom("a", "b", "a_2", "call-3");
const inputs = fc.constantFrom<unknown>({}, { q: "\ud800" }, [1], "x", null, 5, { "k\udc00": [["\ud83d"]] });
const bytes = (...begin: (string | number[])[]) =>
  Buffer.concat([...begin.map((piece) => Buffer.from(piece as string)), Buffer.alloc(16)]).toString("base64");
const PNG = bytes([0x89], "PNG\r\n", [0x1a, 0x0a]);
/** Files by the type that they are said to have: of every kind, under names that are in use, and wrong ones. */
const FILES: readonly (readonly [type: string, data: string])[] = [
  ["image/png", PNG],
  ["IMAGE/PNG", PNG],
  ["image/jpg", bytes([0xff, 0xd8, 0xff, 0xe0])],
  ["image/png", bytes([0xff, 0xd8, 0xff, 0xe0])],
  ["image/*", bytes("GIF89a")],
  ["image/webp", bytes("RIFF", [0, 0, 0, 0], "WEBP")],
  ["image/bmp", bytes("BM", [1, 2, 3, 4, 0, 0, 0, 0])],
  ["image/svg+xml", bytes("<svg/>")],
  ["image/png", bytes("no image")],
  ["application/pdf", bytes("%PDF-1.7")],
  ["application/x-pdf", bytes("%PDF-1.7")],
  ["application/pdf", bytes("no document")],
  ["application/zip", bytes("PK")],
  ["application/json", Buffer.from('{"a":1}').toString("base64")],
  ["application/octet-stream", PNG],
  ["audio/wav", bytes("RIFF", [0, 0, 0, 0], "WAVE")],
  ["audio/mp3", bytes("ID3")],
  ["audio/ogg", bytes("OggS")],
  ["video/mp4", bytes([0, 0, 0, 0], "ftypisom")],
  ["text/plain", Buffer.from("Plain words.").toString("base64")],
  ["text/plain; charset=utf-8", Buffer.from("Plain words.").toString("base64")],
  ["text/csv", Buffer.from("a,b").toString("base64")],
];
const files = fc.constantFrom(...FILES);
const events = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constantFrom("user", "assistant", "system"), words }),
    fc.record({ kind: fc.constant("call"), id: ids, input: inputs }),
    fc.record({ kind: fc.constant("result"), id: ids, words }),
    fc.record({
      kind: fc.constant("file"),
      file: files,
      from: fc.constantFrom("user", "assistant", "result"),
      id: ids,
    }),
  ),
  { maxLength: 10 },
);
type Event = {
  kind: string;
  words?: string;
  id?: string;
  input?: unknown;
  file?: readonly [type: string, data: string];
  from?: string;
};

const urlOf = ([type, data]: NonNullable<Event["file"]>) => `data:${type};base64,${data}`;
const UI_FILE = ({ file }: Event) => ({ type: "file", mediaType: file![0], url: urlOf(file!) });

/** A part of a message of OpenAI's chat completions. */
function chatFile(file: NonNullable<Event["file"]>): object {
  const [type, data] = file;
  if (/^image/i.test(type)) return { type: "image_url", image_url: { url: urlOf(file) } };
  const format = { "audio/wav": "wav", "audio/mp3": "mp3" }[type];
  if (format !== undefined) return { type: "input_audio", input_audio: { data, format } };
  return { type: "file", file: { file_data: urlOf(file), filename: "a" } };
}

const responsesFile = (file: NonNullable<Event["file"]>): object =>
  /^image/i.test(file[0])
    ? { type: "input_image", image_url: urlOf(file), detail: "auto" }
    : { type: "input_file", file_data: urlOf(file), filename: "a" };

function aguiFile([mimeType, value]: NonNullable<Event["file"]>): object {
  const kind = ["image", "audio", "video"].find((each) => mimeType.toLowerCase().startsWith(each)) ?? "document";
  return { type: kind, source: { type: "data", value, mimeType } };
}

/** The body of a request with these events, which ends with words of the user, and its path. */
function requestOf(door: (typeof DOORS)[number], history: readonly Event[]): [path: string, body: Loose] {
  const all = [...history, { kind: "user", words: "Go on." }];
  const results = new Map(history.filter(({ kind }) => kind === "result").map((event) => [event.id, event.words]));
  const content = ({ file, from }: Event) => ({
    type: "content",
    value: [
      { type: "text", text: `of ${from}` },
      { type: "file-data", mediaType: file![0], data: file![1] },
    ],
  });
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
        if (event.kind === "file")
          return {
            id: `m${index}`,
            role: "user",
            content: [door === "chat" ? chatFile(event.file!) : aguiFile(event.file!)],
          };
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
        if (event.kind === "file")
          return event.from === "result"
            ? { type: "function_call_output", call_id: event.id, output: [responsesFile(event.file!)] }
            : { role: "user", content: [responsesFile(event.file!)] };
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
        if (event.kind === "file" && event.from === "result")
          return { role: "tool", content: [{ type: "tool-result", ...named, output: content(event) }] };
        if (event.kind === "file")
          return { role: event.from, content: [{ type: "file", mediaType: event.file![0], data: event.file![1] }] };
        if (event.kind !== "result") return { role: event.kind, content: event.words };
        return { role: "tool", content: [{ type: "tool-result", ...named, output: { said: event.words } }] };
      });
      return ["/agents/assistant/text", { input }];
    }
    default: {
      const input = all.flatMap((event): object[] => {
        if (event.kind === "result") return [];
        if (event.kind === "file" && event.from !== "result") return [{ role: event.from, parts: [UI_FILE(event)] }];
        if (event.kind === "file") {
          const called = { toolCallId: `f-${event.id}`, state: "output-available", input: {}, output: content(event) };
          return [{ role: "assistant", parts: [{ type: "tool-ask", ...called }] }];
        }
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

/** A result with a file whose type has a parameter. */
const WITH_PARAMETER: Event[] = [
  { kind: "file", file: ["text/plain; charset=utf-8", "UGxhaW4gd29yZHMu"], from: "result", id: "b" },
  { kind: "call", id: "b", input: [1] },
];

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
    await fc.assert(fc.asyncProperty(fc.constantFrom(...DOORS), events, send), {
      examples: [["responses", WITH_PARAMETER]],
      numRuns: RUNS,
      includeErrorInReport: true,
    });
    // What one provider alone refuses is learned, with one refusal for each such thing.
    // Thoughts that are missing are told of with each history: they are of other models.
    const learned = upstream.refusals.filter((words) => !/thinking/.test(words));
    // What is wrong with one file says nothing of the next.
    const lasting = learned.filter(
      (words) => !/does not match the provided|not valid\.|Invalid file data|unsupported image/.test(words),
    );
    for (const words of new Set(lasting))
      assert.ok(lasting.filter((each) => each === words).length <= MOST_LEARNED, lasting.join("\n"));
  });
