/** What the parts of a run say to OpenAI's clients: its text, its reasoning, its own tool calls, and the calls that the client runs. */
import type { AgentPart, FinishReason, ToolCall, Usage } from "../agents/run/parts.ts";

export type Said =
  | { readonly type: "text-start" | "text-end" | "reasoning-start" | "reasoning-end" }
  | { readonly type: "text" | "reasoning"; readonly delta: string }
  /** Of the agent itself: `own-result` tells its end. */
  | { readonly type: "own-call"; readonly call: ToolCall }
  | { readonly type: "own-result"; readonly id: string; readonly output: unknown; readonly error: string | null }
  /** For the client. */
  | { readonly type: "call"; readonly call: ToolCall }
  | { readonly type: "end"; readonly finishReason: FinishReason; readonly usage: Usage };

const NOTHING: readonly Said[] = [];

/**
 * Reads the parts of one run. Blocks of text and reasoning come one after the other, each between its start and its end.
 *
 * A call is the client's when its step ends without a result of it: one whose input is wrong is answered by the service.
 */
export class RunReader {
  readonly #isJson: boolean;
  /** Calls of the step that have no result yet. */
  readonly #open = new Map<string, ToolCall>();
  #block: "text" | "reasoning" | null = null;
  /** The text of the step, where an answer in JSON is told only once it is known to fit. */
  #held = "";

  /** @param isJson whether the answer is the `output` of the last part */
  constructor(isJson: boolean) {
    this.#isJson = isJson;
  }

  read(part: AgentPart): readonly Said[] {
    // A sub-agent's answer is the result of the call that asked it.
    if (part.subAgentId !== undefined) return NOTHING;
    switch (part.type) {
      case "text-delta":
        if (!this.#isJson) return this.#add("text", part.delta);
        this.#held += part.delta;
        return NOTHING;
      case "reasoning-delta":
        return this.#add("reasoning", part.delta);
      case "text-end":
      case "reasoning-end":
        return this.#endBlock();
      case "start-step":
        this.#held = "";
        this.#open.clear();
        return this.#endBlock();
      case "tool-call":
        this.#open.set(part.toolCallId, part);
        return this.#endBlock();
      case "tool-result":
        return this.#result(part.toolCallId, part.output, null);
      case "tool-error":
        return this.#result(part.toolCallId, null, part.error);
      case "finish-step":
        return this.#endStep();
      case "finish": {
        const { finishReason, totalUsage: usage, output } = part;
        const answer = this.#isJson && output !== undefined ? this.#whole(JSON.stringify(output)) : NOTHING;
        return [...this.#endBlock(), ...answer, { type: "end", finishReason, usage }];
      }
      default:
        return NOTHING;
    }
  }

  #add(type: "text" | "reasoning", delta: string): readonly Said[] {
    if (delta === "") return NOTHING;
    if (this.#block === type) return [{ type, delta }];
    const before = this.#endBlock();
    this.#block = type;
    return [...before, { type: `${type}-start` }, { type, delta }];
  }

  #endBlock(): readonly Said[] {
    if (this.#block === null) return NOTHING;
    const type = `${this.#block}-end` as const;
    this.#block = null;
    return [{ type }];
  }

  #whole(delta: string): readonly Said[] {
    return [{ type: "text-start" }, { type: "text", delta }, { type: "text-end" }];
  }

  #result(id: string, output: unknown, error: string | null): readonly Said[] {
    const call = this.#open.get(id);
    if (call === undefined) return NOTHING;
    this.#open.delete(id);
    return [...this.#endBlock(), { type: "own-call", call }, { type: "own-result", id, output, error }];
  }

  #endStep(): readonly Said[] {
    const calls = [...this.#open.values()].filter(({ providerExecuted }) => providerExecuted !== true);
    this.#open.clear();
    // An answer in JSON that ends with calls of the client is not the answer yet.
    const held = calls.length > 0 && this.#held !== "" ? this.#whole(this.#held) : NOTHING;
    return [...this.#endBlock(), ...held, ...calls.map((call): Said => ({ type: "call", call }))];
  }
}
