/** Turns the events of one answer into parts: one JSON.parse per event, and no objects beside the parts themselves. */
import { InvalidResponseDataError, type SharedV3ProviderMetadata } from "@ai-sdk/provider";
import { isObject } from "../../lib/is-object.ts";
import {
  type LanguageModelV3FinishReason,
  type LanguageModelV3StreamPart,
  type LanguageModelV3Usage,
  ModelRefusal,
} from "../../plugin/plugin.ts";
import { Carried, type ThoughtName } from "./request-body.ts";
import { ToolCalls } from "./tool-calls.ts";
import type { WireChoice, WireChunk, WireDelta, WireUsage } from "./wire.ts";

/*
 * Most deltas of one answer differ only in their text: such an event is recognised by what surrounds the text, and need not be
 * parsed. If an answer is different, no event is recognised.
 */

/** Does not occur in what a provider sends, and needs no escaping in JSON. */
const MARK = "\u2063penstock\u2063";
const FIELD = '"content":';
/** Learning takes a second parse, and would never succeed with servers that add something random to each event. */
const MAX_ATTEMPTS = 3;

/** Characters that end a JSON string, or stand for others. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON does not allow them either
const NOT_PLAIN = /["\\\u0000-\u001f]/;

class RepeatedDelta {
  #before = "";
  #after = "";
  #attempts = 0;

  /** The text of the event, if the event has the learned form; null if it has to be parsed. */
  read(data: string): string | null {
    const before = this.#before;
    const end = data.length - this.#after.length;
    if (before === "" || end <= before.length) return null;
    // Compares slices, because `startsWith` and `endsWith` take four times as long.
    if (data.slice(0, before.length) !== before || data.slice(end) !== this.#after) return null;
    const text = data.slice(before.length, end);
    return NOT_PLAIN.test(text) ? null : text;
  }

  /** @param data an event that adds `text` to the answer, and does nothing else */
  learn(data: string, text: string): void {
    if (this.#attempts === MAX_ATTEMPTS) return;
    this.#attempts++;
    const literal = JSON.stringify(text);
    const field = data.indexOf(FIELD);
    const start = data.indexOf(literal, field + FIELD.length);
    if (field === -1 || start === -1) return;
    const before = data.slice(0, start + 1);
    const after = data.slice(start + literal.length - 1);
    // Proves that what is between them is the text of the delta: any other text would be read in the same place.
    if (contentOf(`${before}${MARK}${after}`) !== MARK) return;
    this.#before = before;
    this.#after = after;
  }
}

function contentOf(data: string): unknown {
  try {
    return (JSON.parse(data) as WireChunk).choices?.[0]?.delta?.content;
  } catch {
    return null;
  }
}

// Converts a provider's token counts and finish reasons to the terms of the AI SDK.

const UNKNOWN: LanguageModelV3Usage = {
  inputTokens: { total: undefined, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: undefined, text: undefined, reasoning: undefined },
  raw: undefined,
};

function readUsage(usage: WireUsage | null): LanguageModelV3Usage {
  if (usage === null) return UNKNOWN;
  const input = usage.prompt_tokens ?? 0;
  const output = usage.completion_tokens ?? 0;
  const cached = usage.prompt_tokens_details?.cached_tokens ?? usage.prompt_cache_hit_tokens ?? 0;
  const reasoning = usage.completion_tokens_details?.reasoning_tokens ?? 0;
  return {
    inputTokens: { total: input, noCache: input - cached, cacheRead: cached, cacheWrite: undefined },
    outputTokens: { total: output, text: Math.max(0, output - reasoning), reasoning },
    raw: usage as NonNullable<LanguageModelV3Usage["raw"]>,
  };
}

/** OpenAI's, and what other servers say in their place. */
const REASONS: Readonly<Record<string, LanguageModelV3FinishReason["unified"]>> = {
  stop: "stop",
  eos: "stop",
  eos_token: "stop",
  end_turn: "stop",
  stop_sequence: "stop",
  length: "length",
  max_tokens: "length",
  model_length: "length",
  content_filter: "content-filter",
  safety: "content-filter",
  sensitive: "content-filter",
  function_call: "tool-calls",
  tool_calls: "tool-calls",
  tool_use: "tool-calls",
};

type End = Extract<LanguageModelV3StreamPart, { type: "text-end" | "reasoning-end" }>;

const TEXT = "txt-0";
const REASONING = "reasoning-0";
const TEXT_START: LanguageModelV3StreamPart = Object.freeze({ type: "text-start", id: TEXT });
const TEXT_END: End = Object.freeze({ type: "text-end", id: TEXT });
const REASONING_START: LanguageModelV3StreamPart = Object.freeze({ type: "reasoning-start", id: REASONING });
const REASONING_END: End = Object.freeze({ type: "reasoning-end", id: REASONING });
const DONE = "[DONE]";

/** An event of the stream, or a whole answer, that reports an error. The provider's own error is its `cause`. */
class ProviderError extends Error {
  override readonly name = "ProviderError";

  constructor(error: unknown) {
    const { message } = isObject(error) ? error : { message: error };
    super(typeof message === "string" ? message : "the provider sent an error", { cause: error });
  }
}

interface Form {
  /** The key of the provider's metadata. */
  readonly metadataKey: string;
  /** Whether each event is also passed on unchanged. */
  readonly raw: boolean;
  /** Takes note of the name under which thoughts come. */
  readonly learned: { thoughts: ThoughtName };
}

export class ChatParts {
  readonly #form: Form;
  #parts: LanguageModelV3StreamPart[];
  readonly #repeated = new RepeatedDelta();
  #open: "text" | "reasoning" | null = null;
  #tools: ToolCalls | null = null;
  #carried: Carried | null = null;
  #refusal = "";
  #begun = false;
  #finishReason: LanguageModelV3FinishReason | null = null;
  #usage: WireUsage | null = null;
  /** Whether the `finish` part has been made. */
  complete = false;

  constructor(form: Form, first: LanguageModelV3StreamPart) {
    this.#form = form;
    this.#parts = [first];
  }

  get length(): number {
    return this.#parts.length;
  }

  take(): LanguageModelV3StreamPart[] {
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }

  /** Reads the data of one event. Throws an error that the provider reports, or for an invalid event. */
  event(data: string): void {
    if (this.complete || data === "") return;
    const repeated = this.#open === "text" ? this.#repeated.read(data) : null;
    if (repeated !== null) this.#parts.push({ type: "text-delta", id: TEXT, delta: repeated });
    else if (data === DONE) this.finish();
    else {
      const chunk = parseEvent(data);
      this.chunk(chunk);
      const text = this.#form.raw ? null : plainDelta(chunk);
      if (text !== null) this.#repeated.learn(data, text);
    }
  }

  chunk(chunk: WireChunk): void {
    if (this.#form.raw) this.#parts.push({ type: "raw", rawValue: chunk });
    if (chunk.error !== undefined && chunk.error !== null) throw new ProviderError(chunk.error);
    if (!this.#begun) this.#begin(chunk);
    const usage = chunk.usage ?? chunk.x_groq?.usage;
    if (isObject(usage)) this.#usage = usage;
    const choice = firstChoice(chunk);
    if (!isObject(choice)) return;
    // Some servers send an empty finish_reason with each delta.
    if (typeof choice.finish_reason === "string" && choice.finish_reason !== "")
      this.#finishReason = {
        unified: Object.hasOwn(REASONS, choice.finish_reason) ? REASONS[choice.finish_reason]! : "other",
        raw: choice.finish_reason,
      };
    const delta = choice.delta ?? choice.message;
    if (isObject(delta)) this.#delta(delta);
  }

  /** Ends the answer. Throws when it is not complete, and when the model has declined. */
  finish(): void {
    if (this.complete) return;
    const carried = this.#carried?.ofMessage(this.#tools !== null);
    this.#close(this.#tools === null ? carried : undefined);
    this.#tools?.finish(this.#parts, this.#form.metadataKey, carried);
    if (this.#refusal !== "") throw new ModelRefusal(this.#refusal);
    const finishReason = this.#finishReason;
    if (finishReason === null)
      throw new InvalidResponseDataError({ data: undefined, message: "the answer ended without a finish reason" });
    this.complete = true;
    const providerMetadata = { [this.#form.metadataKey]: predictions(this.#usage) };
    this.#parts.push({ type: "finish", finishReason, usage: readUsage(this.#usage), providerMetadata });
  }

  #begin({ id, model, created }: WireChunk): void {
    this.#begun = true;
    this.#parts.push({
      type: "response-metadata",
      id: id ?? undefined,
      modelId: model ?? undefined,
      timestamp: typeof created === "number" ? new Date(created * 1000) : undefined,
    } as LanguageModelV3StreamPart);
  }

  #delta(delta: WireDelta): void {
    const { content, reasoning_content: thought, reasoning = null } = delta;
    if (thought) this.#addReasoning(thought, "reasoning_content");
    else if (reasoning) this.#addReasoning(reasoning, "reasoning");
    if (delta.reasoning_details || delta.extra_content) {
      this.#carried ??= new Carried();
      this.#carried.add(delta);
    }
    if (typeof content === "string") {
      if (content !== "") this.#addText(content);
    } else if (Array.isArray(content)) this.#addContent(content);
    if (typeof delta.refusal === "string") this.#refusal += delta.refusal;
    if (!Array.isArray(delta.tool_calls) || delta.tool_calls.length === 0) return;
    if (this.#open === "reasoning") this.#close();
    this.#tools ??= new ToolCalls();
    for (const call of delta.tool_calls) if (isObject(call)) this.#tools.add(call, this.#parts);
  }

  #addText(delta: string): void {
    if (this.#open !== "text") {
      this.#close();
      this.#open = "text";
      this.#parts.push(TEXT_START);
    }
    this.#parts.push({ type: "text-delta", id: TEXT, delta });
  }

  #addReasoning(delta: string, name: ThoughtName): void {
    if (typeof delta !== "string") return;
    if (this.#open !== "reasoning") {
      this.#close();
      this.#open = "reasoning";
      this.#parts.push(REASONING_START);
    }
    this.#carried ??= new Carried();
    this.#carried.thought(name, delta);
    this.#form.learned.thoughts = name;
    this.#parts.push({ type: "reasoning-delta", id: REASONING, delta });
  }

  /** Adds the content of Mistral: a list of texts and of thoughts, each of which is a list of texts. */
  #addContent(content: readonly unknown[]): void {
    for (const part of content) {
      if (!isObject(part)) continue;
      if (part.type === "text" && typeof part.text === "string" && part.text !== "") this.#addText(part.text);
      if (part.type !== "thinking" || !Array.isArray(part.thinking)) continue;
      const thought = part.thinking
        .map((each) => (isObject(each) && each.type === "text" && typeof each.text === "string" ? each.text : ""))
        .join("");
      if (thought !== "") this.#addReasoning(thought, "reasoning_content");
    }
  }

  /** @param carried the metadata of the message, which its last part has */
  #close(carried?: object): void {
    const open = this.#open;
    this.#open = null;
    if (open === null) return;
    const end = open === "text" ? TEXT_END : REASONING_END;
    const own = open === "text" ? carried : { ...this.#carried?.ofThoughts(), ...carried };
    const providerMetadata = { [this.#form.metadataKey]: own } as SharedV3ProviderMetadata;
    this.#parts.push(own === undefined || Object.keys(own).length === 0 ? end : { ...end, providerMetadata });
  }
}

/** The answer of a chunk. Some servers send several, whatever was asked for: the others are not added to it. */
const firstChoice = ({ choices }: WireChunk): WireChoice | null | undefined =>
  Array.isArray(choices) ? (choices as readonly (WireChoice | null)[]).find((choice) => !choice?.index) : undefined;

/** The text of a chunk that contains nothing else of interest, or null. */
function plainDelta(chunk: WireChunk): string | null {
  if (chunk.usage || chunk.error || chunk.x_groq) return null;
  const choice = firstChoice(chunk);
  if (!isObject(choice) || choice.finish_reason || choice.message || !isObject(choice.delta)) return null;
  const { content, reasoning_content, reasoning, refusal, tool_calls, ...more } = choice.delta as WireDelta;
  const others =
    reasoning_content || reasoning || refusal || tool_calls || more.reasoning_details || more.extra_content;
  return typeof content === "string" && content !== "" && !others ? content : null;
}

export function parseEvent(data: string): WireChunk {
  let value: unknown;
  try {
    value = JSON.parse(data);
  } catch (error) {
    throw new InvalidResponseDataError({
      data: excerpt(data),
      message: `an event is not JSON: ${(error as Error).message}`,
    });
  }
  if (isObject(value)) return value;
  throw new InvalidResponseDataError({ data: excerpt(data), message: "an event is not a JSON object" });
}

const excerpt = (text: string): string => text.slice(0, 2000);

function predictions(usage: WireUsage | null): Record<string, number> {
  const { accepted_prediction_tokens: accepted, rejected_prediction_tokens: rejected } =
    usage?.completion_tokens_details ?? {};
  return {
    ...(typeof accepted === "number" ? { acceptedPredictionTokens: accepted } : {}),
    ...(typeof rejected === "number" ? { rejectedPredictionTokens: rejected } : {}),
  };
}
