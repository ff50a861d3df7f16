/** Reads the output of a run for OpenAI's clients: its text, its reasoning, its own tool calls, and the calls that the client runs. */
import type { SharedV3ProviderMetadata } from "@ai-sdk/provider";
import type { AgentPart, FinishReason, ToolCall, Usage } from "../agents/run/parts.ts";
import type { ProtocolRun } from "../agents/run-requests.ts";

/** The metadata that the provider expects back with a block or a call. */
type Metadata = SharedV3ProviderMetadata | undefined;
type Call = ToolCall & { readonly providerMetadata?: Metadata };

export type Said =
  /** `restart`: the output since the last step started is void, and is sent again. */
  | { readonly type: "step" | "restart" }
  | { readonly type: "text-start" | "reasoning-start" }
  | { readonly type: "text" | "reasoning"; readonly delta: string }
  | { readonly type: "text-end" | "reasoning-end"; readonly metadata: Metadata }
  /** A call of the agent itself: `own-result` is its end. */
  | { readonly type: "own-call"; readonly call: Call }
  | { readonly type: "own-result"; readonly id: string; readonly output: unknown; readonly error: string | null }
  /** A call for the client. */
  | { readonly type: "call"; readonly call: Call }
  | { readonly type: "end"; readonly finishReason: FinishReason; readonly usage: Usage };

/** What has to be known of a run to read its parts. */
export type ReadRun = Pick<ProtocolRun, "isJson" | "clientTools">;

const NOTHING: readonly Said[] = [];
const STEP: Said = { type: "step" };
const RESTART: Said = { type: "restart" };

/**
 * Reads the parts of one run. Blocks of text and reasoning come one after the other, each between its start and its end.
 *
 * A call of a client's tool is passed to the client when its step ends without a result for it: a call with an invalid input is answered
 * by the service.
 */
export class RunReader {
  readonly #run: ReadRun;
  /** Calls of the step that may be for the client. */
  readonly #open = new Map<string, Call>();
  #block: "text" | "reasoning" | null = null;
  /** The text of the step, if a JSON answer must be held back until it is known to be valid. */
  #held = "";

  constructor(run: ReadRun) {
    this.#run = run;
  }

  read(part: AgentPart): readonly Said[] {
    // A sub-agent's answer is the result of the call that started it.
    if (part.subAgentId !== undefined) return NOTHING;
    switch (part.type) {
      case "text-delta":
        if (!this.#run.isJson) return this.#add("text", part.delta);
        this.#held += part.delta;
        return NOTHING;
      case "reasoning-delta":
        return this.#add("reasoning", part.delta);
      case "text-end":
        return this.#block === "text" ? this.#endBlock(part.providerMetadata) : NOTHING;
      case "reasoning-end":
        return this.#endReasoning(part.providerMetadata);
      case "start-step":
        return [...this.#beginStep(), STEP];
      case "step-restart":
        this.#block = null;
        return [...this.#beginStep(), RESTART];
      case "tool-call":
        return this.#call(part);
      case "tool-result":
        return this.#result(part.toolCallId, part.output, null);
      case "tool-error":
        return this.#result(part.toolCallId, null, part.error);
      case "tool-output-denied":
        return this.#result(part.toolCallId, null, part.reason ?? "denied");
      case "finish-step":
        return this.#endStep();
      case "finish": {
        const { finishReason, totalUsage: usage, output } = part;
        const answer = this.#run.isJson && output !== undefined ? whole(JSON.stringify(output)) : NOTHING;
        return [...this.#endBlock(), ...answer, { type: "end", finishReason, usage }];
      }
      default:
        return NOTHING;
    }
  }

  #beginStep(): readonly Said[] {
    this.#held = "";
    this.#open.clear();
    return this.#endBlock();
  }

  #add(type: "text" | "reasoning", delta: string): readonly Said[] {
    if (delta === "") return NOTHING;
    if (this.#block === type) return [{ type, delta }];
    const before = this.#endBlock();
    this.#block = type;
    return [...before, { type: `${type}-start` }, { type, delta }];
  }

  #endBlock(metadata?: Metadata): readonly Said[] {
    if (this.#block === null) return NOTHING;
    const type = `${this.#block}-end` as const;
    this.#block = null;
    return [{ type, metadata }];
  }

  /** Ends the reasoning. A provider may hide it, and expect metadata back in its place. */
  #endReasoning(metadata: Metadata): readonly Said[] {
    if (this.#block === "reasoning") return this.#endBlock(metadata);
    if (metadata === undefined) return NOTHING;
    return [...this.#endBlock(), { type: "reasoning-start" }, { type: "reasoning-end", metadata }];
  }

  #call(call: Call): readonly Said[] {
    const ended = this.#endBlock();
    if (call.providerExecuted !== true && this.#run.clientTools.includes(call.toolName)) {
      this.#open.set(call.toolCallId, call);
      return ended;
    }
    return [...ended, { type: "own-call", call }];
  }

  #result(id: string, output: unknown, error: string | null): readonly Said[] {
    const call = this.#open.get(id);
    this.#open.delete(id);
    const called: readonly Said[] = call === undefined ? NOTHING : [{ type: "own-call", call }];
    return [...this.#endBlock(), ...called, { type: "own-result", id, output, error }];
  }

  #endStep(): readonly Said[] {
    const calls = [...this.#open.values()];
    this.#open.clear();
    // JSON text in a step that ends with calls for the client is not the answer yet.
    const held = calls.length > 0 && this.#held !== "" ? whole(this.#held) : NOTHING;
    return [...this.#endBlock(), ...held, ...calls.map((call): Said => ({ type: "call", call }))];
  }
}

const whole = (delta: string): readonly Said[] => [
  { type: "text-start" },
  { type: "text", delta },
  { type: "text-end", metadata: undefined },
];
