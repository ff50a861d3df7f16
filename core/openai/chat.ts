/** `POST /v1/chat/completions`: an agent answers the whole conversation that its client sends. */

import { randomUUID } from "node:crypto";
import type { ChatCompletionRequest, GenerateOptions } from "../../generated/types.ts";
import type { Agent, ProtocolRun } from "../agents/agent.ts";
import { requireAllResults } from "../agents/prompt/results.ts";
import type { RunCall } from "../agents/run/caller.ts";
import type { Usage } from "../agents/run/parts.ts";
import type { RawReply } from "../http/route.ts";
import { systemTime } from "../lib/clock.ts";
import type { Fields } from "../lib/is-object.ts";
import { type ChatDelta, ChatDeltas, chatMessage, chatUsage } from "./chat-deltas.ts";
import { readChatMessages } from "./chat-input.ts";
import { errorFields, type FieldNames, inOwnWords, jsonReply } from "./errors.ts";
import { optionsOf, readFormat, SAMPLING } from "./options.ts";
import { hearRun, type StreamTranslation, streamTranslated } from "./run-sink.ts";
import { chooseTools, isNothing, readFunction, requireFunction, type ToolsOfRequest } from "./tools.ts";

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
