/** One call of the model: its parts go to the sink as they come, and are gathered for what follows. */
import type {
  LanguageModelV3File,
  LanguageModelV3Source,
  LanguageModelV3StreamPart,
  LanguageModelV3ToolCall,
  LanguageModelV3ToolResult,
} from "@ai-sdk/provider";
import { nextTurn } from "../../lib/event-loop-turns.ts";
import type { ModelStream, PartBatch } from "../../models/chain.ts";
import { providerFailed } from "../../models/failure.ts";
import type { Span } from "../../observability/span.ts";
import { toolFailure, toolOutput } from "../prompt/tool-output.ts";
import { Aborted } from "./abort.ts";
import type { AgentPart, FinishReason, PartSink, Usage } from "./parts.ts";
import type { AssistantContent, RunResult } from "./run.ts";
import { type PendingCall, providerFailure, readCall } from "./tool-input.ts";
import { usageOf, zeroUsage } from "./usage.ts";

type Block = Extract<AssistantContent[number], { text: string }>;
type Delta = Extract<LanguageModelV3StreamPart, { delta: string; type: "text-delta" | "reasoning-delta" }>;
type Start = Extract<LanguageModelV3StreamPart, { type: "text-start" | "reasoning-start" }>;
type Wait = Promise<void> | undefined;

/** Characters of text and reasoning in one step: a model that does not stop must not fill the memory. */
const LONGEST = 64 * 1024 * 1024;

/** What a step may take before everything else has its turn, in characters, and what a part counts for beside its own. */
const SLICE = 64 * 1024;
const PART = 128;

/** What the model said in one step. */
export class ModelStep {
  /** For the prompt of the next step. */
  readonly content: AssistantContent = [];
  /** Calls that wait for our tools. */
  readonly calls: PendingCall[] = [];
  usage: Usage = zeroUsage();
  finishReason: FinishReason = "other";
  /** Seconds until the first part came, of a step that is traced; undefined while none has. */
  firstPart: number | undefined;
  readonly #span: Span | null;
  readonly #sink: PartSink;
  readonly #outcome: RunResult;
  #open: { id: string; block: Block } | null = null;
  #length = 0;
  /** Taken in this turn, at most: turns that the event loop had by itself are not known. */
  #taken = 0;
  #others: Map<string, Block> | null = null;

  constructor(sink: PartSink, outcome: RunResult, span: Span | null) {
    this.#span = span;
    this.#sink = sink;
    this.#outcome = outcome;
  }

  /** The text of the step so far. */
  get text(): string {
    let text = "";
    for (const part of this.content) if (part.type === "text") text += part.text;
    return text;
  }

  /** Reads the model's answer to its end. Leaves nothing open, however it ends. */
  async read(stream: ModelStream): Promise<void> {
    const sink = this.#sink;
    try {
      for (;;) {
        const next = stream.next();
        const batch: PartBatch | null = next instanceof Promise ? await next : next;
        if (batch === null) return;
        if (this.#span !== null) this.firstPart ??= Math.round(this.#span.elapsed()) / 1000;
        // Not for-of: across an await it makes an object per part.
        for (let index = 0; index < batch.length; index++) {
          const wait = this.#take(batch[index]!);
          if (wait !== undefined) await wait;
          this.#taken += PART;
          if (this.#taken < SLICE) continue;
          this.#taken = 0;
          await nextTurn();
          if (sink.closed) throw new Aborted();
        }
        if (sink.closed) throw new Aborted();
      }
    } finally {
      stream.cancel();
    }
  }

  #take(part: LanguageModelV3StreamPart): Wait {
    switch (part.type) {
      case "text-delta":
      case "reasoning-delta":
        return this.#grow(part);
      case "text-start":
      case "reasoning-start":
        return this.#begin(part);
      case "text-end":
      case "reasoning-end":
        return this.#sink.part({ type: part.type, id: part.id });
      case "tool-input-start":
        return this.#sink.part({ type: part.type, id: part.id, toolName: part.toolName, ...byProvider(part) });
      case "tool-input-delta":
        return this.#sink.part({ type: part.type, id: part.id, delta: part.delta });
      case "tool-input-end":
        return this.#sink.part({ type: part.type, id: part.id });
      case "tool-call":
        return this.#call(part);
      case "tool-result":
        return part.preliminary === true ? undefined : this.#sink.part(this.#answer(part));
      case "file":
        return this.#sink.part(filePart(part));
      case "source":
        return this.#sink.part(sourcePart(part));
      case "raw":
        return this.#sink.part({ type: "raw", rawValue: part.rawValue });
      case "finish":
        this.usage = usageOf(part.usage);
        this.finishReason = part.finishReason.unified;
        return undefined;
      default:
        return undefined;
    }
  }

  #begin(part: Start): Wait {
    const type = part.type === "text-start" ? "text" : "reasoning";
    this.#block(part.id, type, part.providerMetadata);
    return this.#sink.part({ type: part.type, id: part.id });
  }

  /** The part of the model is passed on as it is: writers name the fields that they send. */
  #grow(part: Delta): Wait {
    const type = part.type === "text-delta" ? "text" : "reasoning";
    const open = this.#open;
    let block =
      open !== null && open.id === part.id && open.block.type === type ? open.block : this.#other(part.id, type);
    if (block === undefined) {
      block = this.#block(part.id, type, undefined);
      this.#sink.part({ type: `${type}-start`, id: part.id });
    }
    this.#length += part.delta.length;
    this.#taken += part.delta.length;
    if (this.#length > LONGEST) throw providerFailed("unavailable", new Error("the model's answer does not end"));
    block.text += part.delta;
    if (part.providerMetadata !== undefined) block.providerOptions = part.providerMetadata;
    return this.#sink.part(part);
  }

  #block(id: string, type: Block["type"], providerOptions: Block["providerOptions"]): Block {
    const block: Block = { type, text: "", providerOptions };
    if (this.#open !== null) {
      this.#others ??= new Map();
      this.#others.set(`${this.#open.block.type} ${this.#open.id}`, this.#open.block);
    }
    this.#open = { id, block };
    this.content.push(block);
    return block;
  }

  #other(id: string, type: Block["type"]): Block | undefined {
    return this.#others?.get(`${type} ${id}`);
  }

  #call(call: LanguageModelV3ToolCall): Wait {
    const pending = readCall(call);
    const { part } = pending;
    this.#outcome.toolCalls.push(part);
    // A model is shown an object, also where it wrote something else.
    const input = typeof part.input === "object" && part.input !== null ? part.input : {};
    this.content.push({ ...part, input, providerOptions: call.providerMetadata });
    if (part.providerExecuted !== true) this.calls.push(pending);
    return this.#sink.part(part);
  }

  /** A tool that the provider ran. */
  #answer(part: LanguageModelV3ToolResult): AgentPart {
    const { toolCallId, toolName, result } = part;
    const output = part.isError === true ? toolFailure(providerFailure(result)) : toolOutput(result);
    this.content.push({ type: "tool-result", toolCallId, toolName, output, providerOptions: part.providerMetadata });
    const input = this.#outcome.toolCalls.find((call) => call.toolCallId === toolCallId)?.input ?? {};
    const common = { toolCallId, toolName, input, providerExecuted: true } as const;
    if (part.isError === true) return { type: "tool-error", ...common, error: providerFailure(result) };
    const answer = { type: "tool-result", ...common, output: result } as const;
    this.#outcome.toolResults.push(answer);
    return answer;
  }
}

const byProvider = (part: { providerExecuted?: boolean }) =>
  part.providerExecuted === true ? ({ providerExecuted: true } as const) : undefined;

function filePart({ data, mediaType }: LanguageModelV3File): AgentPart {
  const base64 = typeof data === "string" ? data : Buffer.from(data).toString("base64");
  return { type: "file", file: { base64, mediaType } };
}

function sourcePart(part: LanguageModelV3Source): AgentPart {
  const { type, id, title } = part;
  if (part.sourceType === "url") {
    const { sourceType, url } = part;
    return title === undefined ? { type, sourceType, id, url } : { type, sourceType, id, url, title };
  }
  const { sourceType, mediaType, filename } = part;
  const source = { type, sourceType, id, mediaType, title: part.title } as const;
  return filename === undefined ? source : { ...source, filename };
}
