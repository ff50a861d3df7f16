/** Rebuilds the result of a run from its parts, when these are all that is left of it. Equal to the result of the run itself. */
import type { Thought } from "../prompt/model-input.ts";
import { type AgentPart, metadataOf, type PartSink, type ToolResult, withThoughts } from "../run/parts.ts";
import { emptyRunResult, type RunResult } from "../run/run.ts";

type End = Extract<AgentPart, { type: "finish" | "error" | "abort" }>;

export class ResultSink implements PartSink {
  readonly closed = false;
  readonly result: RunResult = emptyRunResult();
  /** How the run ended; null when it has not ended but waits. */
  end: End | null = null;
  /** Results of tools in this step, in order of arrival. */
  #results: ToolResult[] = [];
  /** Thoughts of the step before its first call, by the ids of their blocks. */
  readonly #thoughts = new Map<string, Thought>();
  /** Number of calls before this step. */
  #callsBefore = 0;

  part(part: AgentPart): undefined {
    if (part.subAgentId !== undefined) return;
    const { result } = this;
    switch (part.type) {
      case "start-step":
        this.#endStep();
        result.text = "";
        return;
      case "step-restart":
        this.#thoughts.clear();
        result.text = "";
        result.toolCalls.length = this.#callsBefore;
        return;
      case "text-delta":
        result.text += part.delta;
        return;
      case "reasoning-start":
        this.#thoughts.set(part.id, { text: "" });
        return;
      case "reasoning-delta":
      case "reasoning-end":
        this.#think(part);
        return;
      case "tool-call":
        result.toolCalls.push(withThoughts(part, [...this.#thoughts.values()]));
        this.#thoughts.clear();
        return;
      case "tool-result":
        if (part.providerExecuted === true) result.toolResults.push(withoutMetadata(part));
        else this.#results.push(part);
        this.#answered(part.toolCallId);
        return;
      case "tool-error":
      case "tool-output-denied":
        this.#answered(part.toolCallId);
        return;
      case "tool-approval-request": {
        const { type: _, ...approval } = part;
        result.approvals.push(approval);
        return;
      }
      case "finish-step":
        this.#endStep();
        return;
      case "finish":
        Object.assign(result, { finishReason: part.finishReason, usage: part.totalUsage, model: part.model });
        for (const key of ["output", "messageId", "userMessageId"] as const)
          if (part[key] !== undefined) Object.assign(result, { [key]: part[key] });
        this.end = part;
        return;
      case "error":
      case "abort":
        this.end = part;
    }
  }

  #think(part: Extract<AgentPart, { type: "reasoning-delta" | "reasoning-end" }>): void {
    const thought = this.#thoughts.get(part.id);
    if (thought === undefined) return;
    const { text } = thought;
    const more = part.type === "reasoning-delta" ? { text: text + part.delta } : { text, ...metadataOf(part) };
    this.#thoughts.set(part.id, more);
  }

  /** Sorts the results of the step in the order of the calls. */
  #endStep(): void {
    const { toolCalls, toolResults } = this.result;
    const order = new Map(toolCalls.map(({ toolCallId }, index) => [toolCallId, index]));
    const place = ({ toolCallId }: ToolResult) => order.get(toolCallId) ?? -1;
    toolResults.push(...this.#results.sort((left, right) => place(left) - place(right)));
    this.#results = [];
    this.#callsBefore = toolCalls.length;
    this.#thoughts.clear();
  }

  #answered(toolCallId: string): void {
    const { result } = this;
    if (result.approvals.length > 0)
      result.approvals = result.approvals.filter((approval) => approval.toolCallId !== toolCallId);
  }
}

function withoutMetadata<T extends { providerMetadata?: unknown; error?: string }>(given: T) {
  const { providerMetadata: _, error: _error, ...part } = given;
  return part;
}
