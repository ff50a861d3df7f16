/** The plan of a run, made before its first model call, and its result so far. */
import { randomBytes } from "node:crypto";
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import type { ModelCallOptions } from "../../models/chained-answer.ts";
import type { ModelChain } from "../../models/models.ts";
import type { Span } from "../../observability/span.ts";
import type { Turn } from "../conversation/turn.ts";
import type { AwaitedCall } from "../prompt/awaited-calls.ts";
import type { RunCall, RunCaller } from "./caller.ts";
import type { RunRecord } from "./journal.ts";
import type { OutputSpec, RunSettings } from "./options.ts";
import type { FinishReason, PartSink, PendingApproval, StoredIds, ToolCall, ToolResult, Usage } from "./parts.ts";
import type { RunSources } from "./sources.ts";
import type { ToolSet } from "./tool-set.ts";
import { zeroUsage } from "./usage.ts";

/** A working memory that is JSON, as a client has changed it. */
export interface EditedMemory {
  /** Where it stands in the request, for messages. */
  readonly field: string;
  readonly content: Record<string, unknown>;
}

/** A run that is ready to start. */
export interface PreparedRun {
  readonly plan: RunPlan;
  readonly sources: RunSources | null;
  readonly input: unknown;
  readonly parentSpan: Span | null | undefined;
  readonly workingMemory?: EditedMemory | undefined;
}

export interface RunPlan {
  readonly id: string;
  readonly chain: ModelChain;
  readonly prompt: LanguageModelV3Message[];
  readonly tools: ToolSet;
  readonly settings: RunSettings;
  /** Which tool the model must call; undefined: as it likes. */
  readonly toolChoice?: ModelCallOptions["toolChoice"];
  /** The form of the result, if the request asks for one. */
  readonly output: OutputSpec | null;
  readonly call: RunCaller;
  /** Calls of an earlier answer that waited for approval when the request was made: they are run or refused first. */
  readonly awaited: readonly AwaitedCall[];
  /** Whether calls that need approval are left to the client, which brings the answer. Otherwise the model is told of them. */
  readonly clientApproves: boolean;
  /** Whether calls of client-side tools are left to the client. Otherwise they fail. */
  readonly clientRunsTools: boolean;
  /** How many agents have delegated down to this one. */
  readonly depth: number;
  /** Most bytes of a tool's result that the model is shown, where the tool does not say. */
  readonly toolOutput: number;
  /** Most tokens of a prompt; undefined: what the model takes. */
  readonly contextTokens: number | undefined;
  /** Its turn of the conversation; null without memory. */
  readonly turn: Turn | null;
  /** What it records for the case that its process ends; null for a run that ends with it. */
  readonly record: RunRecord | null;
  /** Whether the prompt begins with the agent's instructions. */
  readonly hasInstructions: boolean;
  /** Whether the model has the tool that updates the working memory. */
  readonly canUpdateWorkingMemory: boolean;
  /** Set when the run begins; null when it is not traced. */
  span: Span | null;
}

/** Filled while the run goes on, so that it is right whenever and however the run ends. */
export interface RunResult extends StoredIds {
  /** The text of the last step. */
  text: string;
  /** Set when `RunPlan.output` is. */
  output: unknown;
  /** Of all steps, and of the agents that were delegated to. */
  usage: Usage;
  /** The model that answered last, as `provider/model`; empty until one has. */
  model: string;
  finishReason: FinishReason;
  /** Of all steps, in order. */
  toolCalls: ToolCall[];
  toolResults: ToolResult[];
  /** Calls that wait for a person's approval. */
  approvals: PendingApproval[];
  /** The id of the run, where it waits for that and goes on by itself. */
  runId?: string;
}

export function emptyRunResult(): RunResult {
  return {
    text: "",
    output: undefined,
    usage: zeroUsage(),
    model: "",
    finishReason: "other",
    toolCalls: [],
    toolResults: [],
    approvals: [],
  };
}

/**
 * Ids of runs, each 32 hexadecimal digits: a random prefix and a counter, at a tenth of the cost of a UUID.
 */
export function createRunIds(): () => string {
  const prefix = randomBytes(12).toString("hex");
  let count = 0;
  return () => {
    count = (count + 1) >>> 0;
    return prefix + count.toString(16).padStart(8, "0");
  };
}

// How runs end whose client has left or whose request was aborted.

/** Thrown inside a run whose reader is gone. It is never reported as an error. */
export class Aborted extends Error {
  override readonly name = "AbortError";
  constructor() {
    super("the client has left");
  }
}

/** Whether a run failed only because it was stopped. */
export function wasAborted(error: unknown, call: RunCall, sink: PartSink): boolean {
  return error instanceof Aborted || sink.closed || call.signal.aborted;
}
