/** `POST /v1/chat/completions`: an agent answers the whole conversation that its client sends, read from its messages. */

import { randomUUID } from "node:crypto";
import type { SharedV3ProviderMetadata } from "@ai-sdk/provider";
import type { ChatCompletionRequest, GenerateOptions } from "../../generated/types.ts";
import type { Agent } from "../agents/agent.ts";
import { requireAllResults } from "../agents/prompt/results.ts";
import type { RunCall } from "../agents/run/caller.ts";
import type { FinishReason, Usage } from "../agents/run/parts.ts";
import type { ProtocolRun } from "../agents/run-requests.ts";
import type { RawReply } from "../http/route.ts";
import { systemTime } from "../lib/clock.ts";
import { invalid, listed } from "../lib/errors.ts";
import { type Fields, isObject } from "../lib/is-object.ts";
import {
  errorFields,
  type FieldNames,
  type InputMessage,
  type InputPart,
  inOwnWords,
  jsonReply,
  placed,
} from "./errors.ts";
import { parseArguments, readAudio, readContent, readFile, readImage, readText, textPart } from "./item-parts.ts";
import { hearRun, type Said, type StreamTranslation, streamTranslated } from "./run-parts.ts";
import {
  chooseTools,
  isNothing,
  optionsOf,
  readFormat,
  readFunction,
  requireFunction,
  SAMPLING,
  type ToolsOfRequest,
} from "./tools.ts";

// Converts the messages of a chat completion to the form that agents read.

const TEXTS = { text: textPart() };
const USER_PARTS = {
  text: textPart(),
  image_url: ({ image_url: image }: Fields, path: string) =>
    isObject(image) ? readImage(image.url, `${path}.image_url.url`) : readImage(image, `${path}.image_url`),
  input_audio: ({ input_audio: audio }: Fields, path: string) => readAudio(audio, `${path}.input_audio`),
  file: ({ file }: Fields, path: string) => readFile(isObject(file) ? file : {}, `${path}.file`),
};
const ASSISTANT_PARTS = { text: textPart(), refusal: textPart("refusal") };

/** Names of functions by the ids of their calls. */
type Calls = ReadonlyMap<string, string>;

const READERS: Readonly<Record<string, (message: Fields, path: string, calls: Calls) => InputMessage | null>> = {
  system: readSystem,
  developer: readSystem,
  user: ({ content }, path) => ({ role: "user", content: readContent(content, USER_PARTS, `${path}.content`) }),
  assistant: readAssistant,
  tool({ tool_call_id: id, content }, path, calls) {
    const toolName = typeof id === "string" ? calls.get(id) : undefined;
    if (toolName === undefined) throw invalid(`${path}.tool_call_id must be the id of a call in the messages`);
    const value = readText(content, TEXTS, `${path}.content`);
    const part = { type: "tool-result", toolCallId: id, toolName, output: { type: "text", value } };
    return { role: "tool", content: [part] };
  },
};

/** @throws ServiceError `invalid_input` that names the field */
function readChatMessages(messages: readonly Fields[]): InputMessage[] {
  const calls: Calls = new Map(messages.flatMap(callsIn));
  return messages.flatMap((message, index) => {
    const path = `messages[${index}]`;
    const { role } = message;
    const reader = typeof role === "string" && Object.hasOwn(READERS, role) ? READERS[role] : undefined;
    if (reader === undefined) throw invalid(`${path}.role must be one of ${listed(Object.keys(READERS))}`);
    const read = reader(message, path, calls);
    return read === null ? [] : placed(read, path);
  });
}

/** The calls of a message as far as they are valid: a client may put a result before its call. */
const callsIn = ({ tool_calls: list }: Fields): [string, string][] =>
  (Array.isArray(list) ? list : []).flatMap((call): [string, string][] =>
    isObject(call) && isObject(call.function) ? [[String(call.id), String(call.function.name)]] : [],
  );

function readSystem({ content }: Fields, path: string): InputMessage {
  return { role: "system", content: readText(content, TEXTS, `${path}.content`) };
}

/** Null for an empty answer: chats keep answers that were broken off. */
function readAssistant(message: Fields, path: string): InputMessage | null {
  const { content, refusal, tool_calls: list } = message;
  const said = isNothing(content) ? [] : readContent(content, ASSISTANT_PARTS, `${path}.content`);
  const refused = typeof refusal === "string" ? [{ type: "text", text: refusal }] : [];
  if (!isNothing(list) && !Array.isArray(list)) throw invalid(`${path}.tool_calls must be array`);
  const called = ((list ?? []) as unknown[]).map((call, index) => readCall(call, `${path}.tool_calls[${index}]`));
  const parts = [...said, ...refused, ...called].filter(
    ({ type, text }) => type !== "text" || (text as string).trim() !== "",
  );
  return parts.length === 0 ? null : { role: "assistant", content: [...readThoughts(message), ...parts] };
}

/** The format of details that Claude has signed, as OpenRouter calls it. */
const CLAUDE = "anthropic-claude-v1";

/** Thoughts, and what else the provider of a model wants back with its answer. Other providers are not sent it. */
function readThoughts({
  reasoning_content: thought,
  reasoning,
  reasoning_details,
  extra_content,
}: Fields): InputPart[] {
  const [text, name] = typeof thought === "string" ? [thought] : [reasoning, "reasoning"];
  const words = typeof text === "string" ? text : "";
  const part = (of: string, message: Fields, signed?: Fields): InputPart => ({
    type: "reasoning",
    text: of,
    providerOptions: { openaiCompatible: { ...(name && { name }), message }, ...signed },
  });
  const extras = isObject(extra_content) ? { extra_content } : {};
  const details: unknown[] = Array.isArray(reasoning_details) ? reasoning_details : [];
  const signed = details.map(readSigned);
  // Each signature is for a text of its own, which clients that join deltas in their own way may have lost elsewhere.
  if (signed.some((each) => each !== null))
    return signed.map((each, index) =>
      part(each?.text ?? "", { ...extras, reasoning_details: [details[index]] }, each?.options),
    );
  const message = { ...(details.length > 0 && { reasoning_details: details }), ...extras };
  return words === "" && Object.keys(message).length === 0 ? [] : [part(words, message)];
}

/** The text of a detail that Claude has signed, and the signature as its packages have it; null for others. */
function readSigned(detail: unknown): { text: string; options: Fields } | null {
  if (!isObject(detail) || detail.format !== CLAUDE) return null;
  const { text, signature, data: redactedData } = detail;
  const own = typeof signature === "string" ? { signature } : { redactedData };
  if (typeof Object.values(own)[0] !== "string") return null;
  return { text: typeof text === "string" ? text : "", options: { anthropic: own, bedrock: own } };
}

function readCall(call: unknown, path: string): InputPart {
  const { id, function: called } = (isObject(call) ? call : {}) as { id?: unknown; function?: unknown };
  if (typeof id !== "string" || id === "") throw invalid(`${path}.id must be a non-empty string`);
  if (!isObject(called) || typeof called.name !== "string") throw invalid(`${path}.function.name must be string`);
  const input = parseArguments(called.arguments, `${path}.function.arguments`);
  return { type: "tool-call", toolCallId: id, toolName: called.name, input, ...readExtras(call as Fields) };
}

/** The extras of a call, and in them the signature of Gemini for its own package too. */
function readExtras({ extra_content: extras }: Fields) {
  if (!isObject(extras)) return undefined;
  const { thought_signature: signature } = isObject(extras.google) ? extras.google : {};
  const google = signature === undefined ? undefined : { google: { thoughtSignature: signature } };
  return { providerOptions: { openaiCompatible: { extra_content: extras }, ...google } };
}

/* Chat completions: the output of a run, as deltas of one message. */

interface CallDelta {
  readonly index: number;
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: string };
  readonly extra_content?: object;
}

/** What the provider wants back with the message. Clients that keep the message as it is send it again. */
interface Wanted {
  readonly reasoning_details?: readonly unknown[];
  readonly extra_content?: object;
}

type ChatDelta =
  | { readonly content: string }
  | { readonly reasoning_content: string }
  | (Wanted & { readonly tool_calls?: readonly [CallDelta] });

type ChatFinish = "stop" | "length" | "tool_calls" | "content_filter";

/** Separates the texts of several steps, which are one text for the client. */
const BETWEEN_TEXTS = "\n\n";

class ChatDeltas {
  #hasText = false;
  #calls = 0;
  /** Of the block of reasoning that is being written. */
  #thought = "";
  /** Thoughts that the provider wants back with the next call. At once, as some clients keep the last ones that came. */
  #signed: readonly object[] = [];

  /** Null for output that this protocol cannot express. */
  of(said: Said): ChatDelta | null {
    switch (said.type) {
      case "text-start":
        return this.#hasText ? { content: BETWEEN_TEXTS } : null;
      case "text":
        this.#hasText = true;
        return { content: said.delta };
      case "reasoning-start":
        this.#thought = "";
        return null;
      case "reasoning":
        this.#thought += said.delta;
        return { reasoning_content: said.delta };
      case "call": {
        const { toolCallId: id, toolName: name, input, providerMetadata } = said.call;
        const { message, extras } = wantedBack(providerMetadata);
        const details = [...this.#signed, ...(message?.reasoning_details ?? [])];
        this.#signed = [];
        const called = { type: "function", function: { name, arguments: JSON.stringify(input) }, ...extras } as const;
        const wanted = details.length === 0 ? message : { ...message, reasoning_details: details };
        return { ...wanted, tool_calls: [{ index: this.#calls++, id, ...called }] };
      }
      case "reasoning-end":
        this.#signed = [...this.#signed, ...signedThoughts(said.metadata, this.#thought)];
        return wantedBack(said.metadata).message ?? null;
      case "text-end":
        return wantedBack(said.metadata).message ?? null;
      default:
        return null;
    }
  }

  /** The finish reason. A run that may not continue with its own tools counts as cut off. */
  finish(reason: FinishReason): ChatFinish {
    if (this.#calls > 0) return "tool_calls";
    if (reason === "content-filter") return "content_filter";
    return reason === "length" || reason === "tool-calls" ? "length" : "stop";
  }
}

const chatUsage = (usage: Usage) => ({
  prompt_tokens: usage.promptTokens,
  completion_tokens: usage.completionTokens,
  total_tokens: usage.totalTokens,
  prompt_tokens_details: { cached_tokens: usage.cachedInputTokens },
  completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
});

/** The fields of the message and of a call, from the metadata of one part. */
function wantedBack(metadata: SharedV3ProviderMetadata = {}) {
  let message: Wanted | undefined;
  let extras: { readonly extra_content: object } | null = null;
  for (const { message: given, extra_content, thoughtSignature } of Object.values(metadata)) {
    if (isObject(extra_content)) extras = { extra_content };
    else if (thoughtSignature) extras = { extra_content: { google: { thought_signature: thoughtSignature } } };
    if (!isObject(given)) continue;
    const { reasoning_details: details, extra_content: own } = given;
    if (Array.isArray(details)) message = { ...message, reasoning_details: details };
    if (isObject(own)) message = { ...message, extra_content: own };
  }
  return { message, extras };
}

/** What Claude has signed, in the form in which OpenRouter hands it on. */
const signedThoughts = (metadata: SharedV3ProviderMetadata = {}, text: string): object[] =>
  Object.values(metadata).flatMap(({ signature, redactedData: data }): object[] => {
    if (typeof signature === "string") return [{ type: "reasoning.text", text, signature, format: CLAUDE }];
    return typeof data === "string" ? [{ type: "reasoning.encrypted", data, format: CLAUDE }] : [];
  });

/** Joins all deltas to one message. */
function chatMessage(deltas: readonly ChatDelta[]) {
  let content = "";
  let reasoning = "";
  const calls: Omit<CallDelta, "index">[] = [];
  let wanted: Wanted = {};
  for (const delta of deltas) {
    if ("content" in delta) content += delta.content;
    else if ("reasoning_content" in delta) reasoning += delta.reasoning_content;
    else {
      const { tool_calls: called = [], ...more } = delta;
      const details = [...(wanted.reasoning_details ?? []), ...(more.reasoning_details ?? [])];
      wanted = { ...wanted, ...more, ...(details.length > 0 && { reasoning_details: details }) };
      for (const { index: _, ...call } of called) calls.push(call);
    }
  }
  return {
    role: "assistant" as const,
    content: content === "" && calls.length > 0 ? null : content,
    refusal: null,
    ...(reasoning !== "" && { reasoning_content: reasoning }),
    ...wanted,
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

type Body = ChatCompletionRequest;

const FIELDS: FieldNames = {
  ...SAMPLING,
  maxOutputTokens: "max_completion_tokens",
  seed: "seed",
  stopSequences: "stop",
};

export async function answerChat(agent: Agent, body: Body, call: RunCall): Promise<RawReply> {
  const { keyed } = call;
  const runId = (keyed?.runId ?? randomUUID()).replaceAll("-", "");
  const run = prepare(agent, body, call, runId);
  const completion: Completion = {
    id: `chatcmpl-${runId}`,
    created: Math.floor((keyed?.at ?? systemTime()) / 1000),
    model: agent.id,
  };
  if (body.stream !== true) return jsonReply(await wholeCompletion(completion, run));
  return streamTranslated(run, new ChunkWriter(completion, body.stream_options?.include_usage === true));
}

interface Completion {
  readonly id: string;
  readonly created: number;
  readonly model: string;
}

function prepare(agent: Agent, body: Body, call: RunCall, runId: string): ProtocolRun {
  const { response_format: format, reasoning_effort: effort } = body;
  const schema = format?.json_schema;
  const messages = readChatMessages(body.messages as Fields[]);
  requireAllResults(messages, "messages");
  return inOwnWords(FIELDS, messages, () =>
    agent.prepare(
      {
        input: messages,
        field: "messages",
        options: options(body),
        json: readFormat(format?.type, schema?.schema, "response_format.json_schema.schema"),
        approves: false,
        runId,
        streams: body.stream === true,
        effort: isNothing(effort) ? undefined : { value: effort, field: "reasoning_effort" },
        ...readTools(body),
      },
      call,
    ),
  );
}

function options(body: Body): GenerateOptions {
  const { max_completion_tokens: tokens, max_tokens: older, stop } = body;
  const same = { ...body, max_completion_tokens: tokens ?? older, stop: isNothing(stop) ? null : [stop].flat() };
  return optionsOf(same, FIELDS);
}

function readTools({ tools: list, tool_choice: choice }: Body): ToolsOfRequest {
  const tools = (list ?? []).map((tool, index) => {
    const path = `tools[${index}]`;
    requireFunction(tool as Fields, path);
    return readFunction(((tool as Fields).function ?? {}) as Fields, `${path}.function`);
  });
  return chooseTools(tools, choice, ({ function: named }) => (named as Fields | undefined)?.name);
}

async function wholeCompletion(completion: Completion, run: ProtocolRun) {
  const writer = new ChatDeltas();
  const deltas: ChatDelta[] = [];
  let finishReason = writer.finish("other");
  let usage: Usage | null = null;
  await hearRun(run, (said) => {
    if (said.type === "end") {
      finishReason = writer.finish(said.finishReason);
      usage = said.usage;
    }
    const delta = writer.of(said);
    if (delta !== null) deltas.push(delta);
  });
  const choice = { index: 0, message: chatMessage(deltas), logprobs: null, finish_reason: finishReason };
  return {
    ...completion,
    object: "chat.completion",
    choices: [choice],
    ...(usage !== null && { usage: chatUsage(usage) }),
  };
}

const DONE = "data: [DONE]\n\n";

/** Writes the chunks of a stream. */
class ChunkWriter implements StreamTranslation {
  readonly #deltas = new ChatDeltas();
  /** The start of all chunks. */
  readonly #head: string;
  readonly #withUsage: boolean;
  #usage: Usage | null = null;

  constructor({ id, created, model }: Completion, withUsage: boolean) {
    this.#head = JSON.stringify({ id, object: "chat.completion.chunk", created, model }).slice(0, -1);
    this.#withUsage = withUsage;
  }

  begin(): string {
    return this.#chunk({ role: "assistant", content: "" });
  }

  write(said: Parameters<ChatDeltas["of"]>[0]): string {
    if (said.type === "end") {
      this.#usage = said.usage;
      return this.#chunk({}, this.#deltas.finish(said.finishReason));
    }
    const delta = this.#deltas.of(said);
    return delta === null ? "" : this.#chunk(delta);
  }

  end(): string {
    if (!this.#withUsage || this.#usage === null) return DONE;
    return `data: ${this.#head},"choices":[],"usage":${JSON.stringify(chatUsage(this.#usage))}}\n\n${DONE}`;
  }

  fail(message: string, error: unknown): string {
    return `data: ${JSON.stringify({ error: errorFields(error, message) })}\n\n${DONE}`;
  }

  #chunk(delta: object, finishReason: string | null = null): string {
    const choices = [{ index: 0, delta, logprobs: null, finish_reason: finishReason }];
    const usage = this.#withUsage ? ',"usage":null' : "";
    return `data: ${this.#head},"choices":${JSON.stringify(choices)}${usage}}\n\n`;
  }
}
