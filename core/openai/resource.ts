/** The response resource: every key is present, with null where it does not apply, because clients check that. */
import type { CreateResponseRequest } from "../../generated/types.ts";
import type { ClientTool } from "../agents/run/client-tools.ts";
import type { FinishReason, Usage } from "../agents/run/parts.ts";
import type { OutputItem } from "./items.ts";

type ResponseStatus = "in_progress" | "completed" | "incomplete" | "failed" | "cancelled";

/** The fields of a response that describe its end. */
export interface ResponseEnd {
  readonly status: ResponseStatus;
  readonly completed_at: number | null;
  readonly incomplete_details: { readonly reason: string } | null;
  readonly error: { readonly code: string; readonly message: string } | null;
}

export interface ResponseResource extends ResponseEnd {
  readonly id: string;
  readonly object: "response";
  /** Seconds since 1970, like all times here. */
  readonly created_at: number;
  readonly model: string;
  readonly background: boolean;
  readonly store: boolean;
  readonly output: readonly OutputItem[];
  readonly usage: object | null;
  readonly [key: string]: unknown;
}

interface Beginning {
  readonly id: string;
  readonly createdAt: number;
  readonly body: CreateResponseRequest;
  readonly tools: readonly ClientTool[];
  readonly store: boolean;
}

/** The resource of a response at its start, with the settings of the request. */
export function beginResource({ id, createdAt, body, tools, store }: Beginning): ResponseResource {
  return {
    id,
    object: "response",
    created_at: createdAt,
    ...IN_PROGRESS,
    model: body.model,
    previous_response_id: body.previous_response_id ?? null,
    instructions: body.instructions ?? null,
    output: [],
    tools: tools.map(({ name, description, parameters, strict = null }) => ({
      type: "function",
      name,
      description: description || null,
      parameters,
      strict,
    })),
    tool_choice: body.tool_choice ?? "auto",
    truncation: body.truncation ?? "disabled",
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    text: { format: body.text?.format ?? { type: "text" }, verbosity: body.text?.verbosity ?? "medium" },
    temperature: body.temperature ?? 1,
    top_p: body.top_p ?? 1,
    presence_penalty: body.presence_penalty ?? 0,
    frequency_penalty: body.frequency_penalty ?? 0,
    top_logprobs: 0,
    reasoning: { effort: body.reasoning?.effort ?? null, summary: body.reasoning?.summary ?? null },
    usage: null,
    max_output_tokens: body.max_output_tokens ?? null,
    max_tool_calls: body.max_tool_calls ?? null,
    store,
    background: body.background ?? false,
    service_tier: "default",
    metadata: body.metadata ?? {},
    safety_identifier: body.safety_identifier ?? null,
    prompt_cache_key: body.prompt_cache_key ?? null,
  };
}

/** Why an answer is incomplete. A run that may not continue with its own tools counts as cut off too. */
const INCOMPLETE: Partial<Record<FinishReason, string>> = {
  length: "max_output_tokens",
  "content-filter": "content_filter",
  "tool-calls": "max_steps",
};

/** @param hasCalls whether the client has to run something: then the response counts as complete */
export function endOf(reason: FinishReason, hasCalls: boolean, now: number): ResponseEnd {
  const missing = hasCalls ? undefined : INCOMPLETE[reason];
  if (missing !== undefined)
    return { status: "incomplete", completed_at: null, incomplete_details: { reason: missing }, error: null };
  return { status: "completed", completed_at: now, incomplete_details: null, error: null };
}

export const failedEnd = (code: string, message: string): ResponseEnd => ({
  status: "failed",
  completed_at: null,
  incomplete_details: null,
  error: { code, message },
});

export const IN_PROGRESS: ResponseEnd = {
  status: "in_progress",
  completed_at: null,
  incomplete_details: null,
  error: null,
};

export const CANCELLED: ResponseEnd = {
  status: "cancelled",
  completed_at: null,
  incomplete_details: null,
  error: null,
};

export const responseUsage = (usage: Usage) => ({
  input_tokens: usage.promptTokens,
  input_tokens_details: { cached_tokens: usage.cachedInputTokens },
  output_tokens: usage.completionTokens,
  output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
  total_tokens: usage.totalTokens,
});
