/**
 * The typed parts of a run, as `POST /agents/:id/stream` sends them (contract, "Agent raw stream").
 * Everything else (text, object, UI stream) is a fold or a map over these.
 */
import type { ToolCall as Call, FinishReason, ToolResult as Result, Usage } from "../../../generated/types.ts";

export type { FinishReason, Usage };

/** `providerExecuted` marks a tool that the provider ran itself. */
export type ToolCall = Call & { providerExecuted?: true };

export type ToolResult = Result & { providerExecuted?: true };

type Marked<T> = T & { subAgentId?: string; subAgentName?: string };

export type AgentPart = Marked<
  | { type: "start" }
  | { type: "start-step" }
  | { type: "text-start"; id: string }
  | { type: "text-delta"; id: string; delta: string }
  | { type: "text-end"; id: string }
  | { type: "reasoning-start"; id: string }
  | { type: "reasoning-delta"; id: string; delta: string }
  | { type: "reasoning-end"; id: string }
  | { type: "tool-input-start"; id: string; toolName: string; providerExecuted?: true }
  | { type: "tool-input-delta"; id: string; delta: string }
  | { type: "tool-input-end"; id: string }
  | ToolCall
  | ToolResult
  | { type: "tool-error"; toolCallId: string; toolName: string; input: unknown; error: string; providerExecuted?: true }
  | { type: "source"; sourceType: "url"; id: string; url: string; title?: string }
  | { type: "source"; sourceType: "document"; id: string; mediaType: string; title: string; filename?: string }
  | { type: "file"; file: { base64: string; mediaType: string } }
  | { type: "raw"; rawValue: unknown }
  | { type: "finish-step"; usage: Usage; finishReason: FinishReason }
  | { type: "finish"; finishReason: FinishReason; totalUsage: Usage; output?: unknown }
  | { type: "abort" }
  | { type: "error"; error: string }
>;

/**
 * Takes the parts of a run as they come: called synchronously, in order. A promise says that the reader is behind: the
 * loop awaits it before it reads on from the model, so that a slow reader slows the upstream (design.md, section 7).
 */
export interface PartSink {
  /** The model has accepted the call: headers may go out. Called once, before the first part. */
  accepted?(): void;
  part(part: AgentPart): Promise<void> | undefined;
  /** True once nobody reads any more: the run ends as if the client had left. */
  readonly closed: boolean;
}

/** A sink for runs whose parts nobody asked for. */
export const SILENT: PartSink = Object.freeze({ part: () => undefined, closed: false });
