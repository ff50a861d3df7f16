/** One call of the model: its parts go to the sink as they come, and are gathered for what follows. */
import type { LanguageModelV3FinishReason, LanguageModelV3StreamPart } from "@ai-sdk/provider";
import type { PartBatch } from "./model-chain.ts";
import type { FinishReason, PartSink, ToolCall, Usage } from "./parts.ts";
import { SILENT } from "./parts.ts";
import type { AssistantContent, CallOptions, RunOutcome, RunPlan } from "./run.ts";
import { readToolInput, takeProviderResult } from "./tool-input.ts";
import { usageOf } from "./usage.ts";
