/** The response resource: every key is present, with null where it does not apply, because clients check that. */
import type { CreateResponseRequest } from "../../generated/types.ts";
import type { FinishReason, Usage } from "../agents/run/parts.ts";
import type { ClientTool } from "../agents/run/tool-set.ts";
import type { Fields } from "../lib/is-object.ts";
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

/** What is repeated of the request, and what stands for it where the request does not say it. */
const ECHOED = {
  previous_response_id: null,
  instructions: null,
  tool_choice: "auto",
  truncation: "disabled",
  parallel_tool_calls: true,
  temperature: 1,
  top_p: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
  max_output_tokens: null,
  max_tool_calls: null,
  metadata: {},
  safety_identifier: null,
  prompt_cache_key: null,
};

/** The resource of a response at its start, with the settings of the request. */
export function beginResource({ id, createdAt, body, tools, store }: Beginning): ResponseResource {
  return {
    id,
    object: "response",
    created_at: createdAt,
    ...IN_PROGRESS,
    ...Object.fromEntries(
      Object.entries(ECHOED).map(([key, absent]) => [key, (body as object as Fields)[key] ?? absent]),
    ),
    model: body.model,
    output: [],
    tools: tools.map(({ name, description, parameters, strict = null }) => ({
      type: "function",
      name,
      description: description || null,
      parameters,
      strict,
    })),
    text: { format: body.text?.format ?? { type: "text" }, verbosity: body.text?.verbosity ?? "medium" },
    top_logprobs: 0,
    reasoning: { effort: body.reasoning?.effort ?? null, summary: body.reasoning?.summary ?? null },
    usage: null,
    store,
    background: body.background ?? false,
    service_tier: "default",
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
  return missing === undefined
    ? standing("completed", { completed_at: now })
    : standing("incomplete", { incomplete_details: { reason: missing } });
}

const standing = (status: ResponseStatus, more?: Partial<ResponseEnd>): ResponseEnd => ({
  status,
  completed_at: null,
  incomplete_details: null,
  error: null,
  ...more,
});

export const failedEnd = (code: string, message: string) => standing("failed", { error: { code, message } });

export const IN_PROGRESS = standing("in_progress");
export const CANCELLED = standing("cancelled");

export const responseUsage = (usage: Usage) => ({
  input_tokens: usage.promptTokens,
  input_tokens_details: { cached_tokens: usage.cachedInputTokens },
  output_tokens: usage.completionTokens,
  output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
  total_tokens: usage.totalTokens,
});
