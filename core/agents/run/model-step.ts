/** One call of the model: passes its parts on to the sink, and collects them for the next prompt and the result. */
import type {
  LanguageModelV3CallOptions,
  LanguageModelV3File,
  LanguageModelV3FinishReason,
  LanguageModelV3FunctionTool,
  LanguageModelV3Message,
  LanguageModelV3StreamPart,
  LanguageModelV3ToolCall,
  LanguageModelV3ToolResult,
  SharedV3ProviderMetadata,
} from "@ai-sdk/provider";
import type { Logger } from "pino";
import { isTooDeep, MAX_JSON_DEPTH } from "../../http/decode.ts";
import { nextTurn } from "../../lib/event-loop-turns.ts";
import { changedInteger, parseExactly } from "../../lib/large-integers.ts";
import type { ModelCallOptions, ModelStream } from "../../models/chained-answer.ts";
import { providerFailed } from "../../models/failure.ts";
import { forgetBareCalls, type LearnedModel } from "../../models/refusals.ts";
import type { Span } from "../../observability/span.ts";
import type { PartBatch } from "../../plugin/plugin.ts";
import { type AssistantContent, mergeMetadata, type Thought } from "../prompt/model-input.ts";
import { resultOutput, toolFailure } from "../prompt/results.ts";
import { modelToolName } from "../prompt/tool-names.ts";
import type { RunCall } from "./caller.ts";
import type { KeptParts } from "./journal.ts";
import {
  type AgentPart,
  base64Of,
  type FinishReason,
  type PartSink,
  signed,
  sourcePart,
  type ToolCall,
  type Usage,
  withThoughts,
} from "./parts.ts";
import { PromptBounds } from "./prompt-bounds.ts";
import { Aborted, type RunPlan, type RunResult } from "./run.ts";
import type { RunCalls } from "./run-calls.ts";
import { CUT, stepReason, toUsage, zeroUsage } from "./usage.ts";

/**
 * The options of the model calls of a run. The signal is taken from the request when the model reads it: a model that answers
 * at once never does, and creating a signal costs more than the rest of the loop.
 */
export class CallOptions implements ModelCallOptions {
  prompt: LanguageModelV3Message[];
  readonly maxOutputTokens: number | undefined;
  readonly temperature: number | undefined;
  readonly topP: number | undefined;
  readonly frequencyPenalty: number | undefined;
  readonly presencePenalty: number | undefined;
  readonly seed: number | undefined;
  readonly stopSequences: string[] | undefined;
  readonly providerOptions: LanguageModelV3CallOptions["providerOptions"];
  readonly responseFormat: LanguageModelV3CallOptions["responseFormat"];
  readonly tools: LanguageModelV3FunctionTool[] | undefined;
  toolChoice: LanguageModelV3CallOptions["toolChoice"];
  readonly #call: RunCall;
  readonly #bounds: PromptBounds;

  constructor(plan: RunPlan, prompt: LanguageModelV3Message[]) {
    const { settings } = plan;
    this.#bounds = new PromptBounds(plan, prompt);
    this.prompt = prompt;
    this.maxOutputTokens = settings.maxOutputTokens;
    this.temperature = settings.temperature;
    this.topP = settings.topP;
    this.frequencyPenalty = settings.frequencyPenalty;
    this.presencePenalty = settings.presencePenalty;
    this.seed = settings.seed;
    this.stopSequences = settings.stopSequences;
    this.providerOptions = settings.providerOptions;
    this.responseFormat = plan.output?.format;
    this.tools = plan.tools.definitions;
    this.toolChoice = this.tools === undefined ? undefined : (plan.toolChoice ?? AUTO);
    this.#call = plan.call;
  }

  /** Makes the prompt fit; called before each call. */
  fit(): void {
    this.prompt = this.#bounds.fit(this.prompt);
  }

  /** Takes in what the model that answered has said, and what its provider counted. */
  learn(learned: LearnedModel, { content, usage }: Pick<ModelStep, "content" | "usage">): void {
    this.#bounds.learn(learned, usage.promptTokens);
    if (learned.refused.size > 0) forgetBareCalls(learned.refused, content);
  }

  shorten(error: unknown, learned: LearnedModel): boolean {
    const shorter = this.#bounds.shorten(this.prompt, error, learned);
    if (shorter === null) return false;
    this.prompt = shorter;
    return true;
  }

  get abortSignal(): AbortSignal {
    return this.#call.signal;
  }

  get aborts(): RunCall["aborts"] {
    return this.#call.aborts;
  }

  get logger(): Logger {
    return this.#call.logger;
  }
}

const AUTO = { type: "auto" } as const;

type Block = Extract<AssistantContent[number], { text: string }>;
type Delta = Extract<LanguageModelV3StreamPart, { delta: string; type: "text-delta" | "reasoning-delta" }>;
type Start = Extract<LanguageModelV3StreamPart, { type: "text-start" | "reasoning-start" }>;
type End = Extract<LanguageModelV3StreamPart, { type: "text-end" | "reasoning-end" }>;
type InputStart = Extract<LanguageModelV3StreamPart, { type: "tool-input-start" }>;
type Wait = Promise<void> | undefined;

/** Of text and reasoning in one step: a model that does not stop must not fill the memory. */
const MAX_STEP_CHARACTERS = 64 * 1024 * 1024;

/** After so many characters the event loop gets a turn; each part counts for some characters more than its own. */
const CHARACTERS_PER_TURN = 64 * 1024;
const CHARACTERS_PER_PART = 128;

/** Reads one answer of a model. */
export class ModelStep {
  /** For the prompt of the next step. */
  readonly content: AssistantContent = [];
  /** Tool calls that the service has to run. */
  readonly calls: PendingCall[] = [];
  usage: Usage = zeroUsage();
  finishReason: FinishReason = "other";
  /** Seconds until the first part came, and the provider's id of the answer; only when the step is traced. */
  seen: { readonly firstPart: number; responseId: string | undefined } | undefined;
  readonly kept: KeptParts | null;
  readonly #span: Span | null;
  readonly #sink: PartSink;
  readonly #outcome: RunResult;
  #open: { id: string; block: Block } | null = null;
  #length = 0;
  /** Characters since the last turn of the event loop that was waited for. */
  #charactersThisTurn = 0;
  #others: Map<string, Block> | null = null;
  /** Calls that the client is told of at the end, since it may run one as soon as it knows of it. */
  readonly #forClient: Extract<AgentPart, { type: "tool-call" }>[] = [];
  readonly #runCalls: RunCalls;
  /** What the provider said with the beginning of a call, by its id. */
  #inputMetadata: Map<string, SharedV3ProviderMetadata> | null = null;

  /** @param kept takes what the journal of the run needs of the answer */
  constructor(sink: PartSink, outcome: RunResult, calls: RunCalls, span: Span | null, kept: KeptParts | null) {
    this.#span = span;
    this.kept = kept;
    this.#sink = sink;
    this.#outcome = outcome;
    this.#runCalls = calls;
    calls.nextStep();
  }

  /** The text of the step so far. */
  get text(): string {
    let text = "";
    for (const part of this.content) if (part.type === "text") text += part.text;
    return text;
  }

  /** Reads the answer to its end. The stream is closed however that ends. */
  async read(stream: Pick<ModelStream, "next" | "cancel">): Promise<void> {
    const sink = this.#sink;
    try {
      for (;;) {
        const next = stream.next();
        const batch: PartBatch | null = next instanceof Promise ? await next : next;
        if (batch === null) return;
        this.kept?.add(batch);
        if (this.#span !== null)
          this.seen ??= { firstPart: Math.round(this.#span.elapsed()) / 1000, responseId: undefined };
        // Not for-of: across an await that allocates an object per part.
        for (let index = 0; index < batch.length; index++) {
          const wait = this.#handle(batch[index]!);
          if (wait !== undefined) await wait;
          this.#charactersThisTurn += CHARACTERS_PER_PART;
          if (this.#charactersThisTurn < CHARACTERS_PER_TURN) continue;
          this.#charactersThisTurn = 0;
          await nextTurn();
          if (sink.closed) throw new Aborted();
        }
        if (sink.closed) throw new Aborted();
      }
    } finally {
      stream.cancel();
    }
  }

  #handle(part: LanguageModelV3StreamPart): Wait {
    switch (part.type) {
      case "text-delta":
      case "reasoning-delta":
        return this.#addDelta(part);
      case "text-start":
      case "reasoning-start":
        return this.#startBlock(part);
      case "text-end":
      case "reasoning-end":
        return this.#endBlock(part);
      case "tool-input-start":
        return this.#startInput(part);
      case "tool-input-delta":
        return this.#sink.part({ type: part.type, id: this.#runCalls.idOf(part.id), delta: part.delta });
      case "tool-input-end":
        return this.#sink.part({ type: part.type, id: this.#runCalls.idOf(part.id) });
      case "tool-call":
        return this.#addCall(part);
      case "tool-result":
        return part.preliminary === true ? undefined : this.#sink.part(this.#addResult(part));
      case "file":
        return this.#addFile(part);
      case "source":
        return this.#sink.part(sourcePart(part));
      case "response-metadata":
        if (this.seen !== undefined) this.seen.responseId = part.id;
        return undefined;
      case "raw":
        return this.#sink.part({ type: "raw", rawValue: part.rawValue });
      case "finish":
        this.usage = toUsage(part.usage);
        return this.#finish(part.finishReason);
      default:
        return undefined;
    }
  }

  #startBlock(part: Start): Wait {
    const { type, id, providerMetadata } = part;
    this.#addBlock(id, type === "text-start" ? "text" : "reasoning", providerMetadata);
    return this.#sink.part(signed({ type, id }, providerMetadata));
  }

  /** With all that the provider said of the block: signatures come in its deltas or with its end. */
  #endBlock(part: End): Wait {
    const block = this.#findBlock(part.id, part.type === "text-end" ? "text" : "reasoning");
    const { type, id, providerMetadata } = part;
    if (block === undefined) return this.#sink.part({ type, id });
    block.providerOptions = mergeMetadata(block.providerOptions, providerMetadata);
    return this.#sink.part(signed({ type, id }, block.providerOptions));
  }

  /** Passes the provider's own part on, without a copy: sinks pick the fields that they send. */
  #addDelta(part: Delta): Wait {
    const type = part.type === "text-delta" ? "text" : "reasoning";
    let block = this.#findBlock(part.id, type);
    if (block === undefined) {
      block = this.#addBlock(part.id, type, undefined);
      this.#sink.part({ type: `${type}-start`, id: part.id });
    }
    this.#length += part.delta.length;
    this.#charactersThisTurn += part.delta.length;
    if (this.#length > MAX_STEP_CHARACTERS)
      throw providerFailed(
        { reason: "unavailable", retryAfter: null },
        new Error(`the model's answer is longer than ${MAX_STEP_CHARACTERS} characters`),
      );
    block.text += part.delta;
    if (part.providerMetadata !== undefined)
      block.providerOptions = mergeMetadata(block.providerOptions, part.providerMetadata);
    return this.#sink.part(part);
  }

  #addBlock(id: string, type: Block["type"], providerOptions: Block["providerOptions"]): Block {
    const block: Block = { type, text: "", providerOptions };
    if (this.#open !== null) {
      this.#others ??= new Map();
      this.#others.set(`${this.#open.block.type} ${this.#open.id}`, this.#open.block);
    }
    this.#open = { id, block };
    this.content.push(block);
    return block;
  }

  #findBlock(id: string, type: Block["type"]): Block | undefined {
    const open = this.#open;
    if (open !== null && open.id === id && open.block.type === type) return open.block;
    return this.#others?.get(`${type} ${id}`);
  }

  #startInput(part: InputStart): Wait {
    const id = this.#runCalls.begin(part.id);
    const { type, providerMetadata } = part;
    if (providerMetadata !== undefined) {
      this.#inputMetadata ??= new Map();
      this.#inputMetadata.set(id, providerMetadata);
    }
    const toolName = this.#runCalls.toolName(part.toolName);
    const begun: AgentPart = { type, id, toolName };
    if (part.providerExecuted === true) begun.providerExecuted = true;
    return this.#sink.part(signed(begun, providerMetadata));
  }

  #addCall(call: LanguageModelV3ToolCall): Wait {
    const toolCallId = this.#runCalls.complete(call.toolCallId);
    const toolName = this.#runCalls.toolName(call.toolName);
    // Input that is not JSON is kept as text, so that clients see what the model wrote.
    const { input, problem } = parseInput(call.input);
    const part: ToolCall = { type: "tool-call", toolCallId, toolName, input };
    if (call.providerExecuted === true) part.providerExecuted = true;
    const providerOptions = mergeMetadata(this.#inputMetadata?.get(toolCallId), call.providerMetadata);
    const whole = signed(part, providerOptions);
    const thoughts = this.#thoughts();
    this.#outcome.toolCalls.push(thoughts === null ? whole : withThoughts(whole, thoughts));
    const { type, providerExecuted } = part;
    const said = { type, toolCallId, toolName: modelToolName(toolName), input, providerOptions };
    this.content.push(providerExecuted === undefined ? said : { ...said, providerExecuted });
    if (providerExecuted === undefined) this.calls.push({ part, problem });
    if (!this.#runCalls.isForClient(toolName)) return this.#sink.part(whole);
    this.#forClient.push(whole);
    return undefined;
  }

  /** Those before the first call: it carries them for all. */
  #thoughts(): Thought[] | null {
    let thoughts: Thought[] | null = null;
    for (const part of this.content) {
      if (part.type === "tool-call") return null;
      if (part.type !== "reasoning") continue;
      thoughts ??= [];
      thoughts.push({ text: part.text, providerMetadata: part.providerOptions });
    }
    return thoughts;
  }

  /** Only now it is known whether the calls are whole. */
  #finish({ unified }: LanguageModelV3FinishReason): Wait {
    const cut = CUT[unified];
    const problem = cut === undefined ? null : `the answer ${cut}, so that none of its tool calls ran`;
    if (problem !== null) for (const call of this.calls) call.problem = problem;
    this.finishReason = stepReason(unified, this.calls.length > 0);
    let wait: Wait;
    for (const call of this.#forClient) wait = this.#sink.part(problem === null ? call : { ...call, error: problem });
    return wait;
  }

  #addFile(part: LanguageModelV3File): Wait {
    const { type, mediaType, providerMetadata } = part;
    const base64 = base64Of(part);
    this.content.push({ type, data: base64, mediaType, providerOptions: providerMetadata });
    return this.#sink.part(signed({ type, file: { base64, mediaType } }, providerMetadata));
  }

  /** The result of a tool that the provider ran. */
  #addResult(part: LanguageModelV3ToolResult): AgentPart {
    const { result, providerMetadata } = part;
    const toolCallId = this.#runCalls.idOf(part.toolCallId);
    const toolName = this.#runCalls.toolName(part.toolName);
    const output = part.isError === true ? toolFailure(providerToolError(result)) : resultOutput(result);
    const named = { toolCallId, toolName: modelToolName(toolName) };
    this.content.push({ type: "tool-result", ...named, output, providerOptions: providerMetadata });
    const input = this.#outcome.toolCalls.findLast((call) => call.toolCallId === toolCallId)?.input ?? {};
    const common = { toolCallId, toolName, input, providerExecuted: true } as const;
    if (part.isError === true)
      return signed({ type: "tool-error", ...common, error: providerToolError(result) }, providerMetadata);
    const answer = { type: "tool-result", ...common, output: result } as const;
    this.#outcome.toolResults.push(answer);
    return signed(answer, providerMetadata);
  }
}

// Parses tool calls, whose input models write as JSON text.

/** A call that has not run yet. */
export interface PendingCall {
  readonly part: ToolCall;
  /** Why it cannot run, or null. */
  problem: string | null;
}

/** @throws ServiceError `provider_failed` for input that is nested more deeply than what clients may send */
function parseInput(text: string): { input: unknown; problem: string | null } {
  // A tool without parameters is often called with no text at all.
  if (text.trim() === "") return { input: {}, problem: null };
  if (text.length > MAX_JSON_DEPTH * 2 && isTooDeep(Buffer.from(text))) {
    const cause = new Error(`the arguments of a tool call are nested deeper than ${MAX_JSON_DEPTH} levels`);
    throw providerFailed({ reason: "unavailable", retryAfter: null }, cause);
  }
  try {
    const path = changedInteger(text);
    const problem = path === null ? null : `${path || "the input"} is too large for a number: send it as a string`;
    return { input: parseExactly(text), problem };
  } catch {
    return { input: text, problem: "the input is not valid JSON" };
  }
}

/** The error message of a tool that the provider ran. */
function providerToolError(result: LanguageModelV3ToolResult["result"]): string {
  return typeof result === "string" ? result : JSON.stringify(result);
}
