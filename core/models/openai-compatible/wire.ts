/** The fields of a provider's answer that are read. Any of them may be missing. */

export interface WireChunk {
  readonly id?: string | null;
  readonly model?: string | null;
  readonly created?: number | null;
  readonly choices?: readonly (WireChoice | null)[] | null;
  readonly usage?: WireUsage | null;
  /** Sent by Groq when it was not asked for `usage`. */
  readonly x_groq?: { readonly usage?: WireUsage | null } | null;
  readonly error?: unknown;
}

export interface WireChoice {
  /** Left out: 0. */
  readonly index?: number | null;
  /** Set in a stream. */
  readonly delta?: WireDelta | null;
  /** Set in a whole completion. */
  readonly message?: WireDelta | null;
  readonly finish_reason?: string | null;
}

export interface WireDelta {
  readonly content?: string | readonly unknown[] | null;
  /** Sent by DeepSeek and most others. */
  readonly reasoning_content?: string | null;
  /** Sent by OpenRouter and vLLM. */
  readonly reasoning?: string | null;
  readonly refusal?: string | null;
  readonly tool_calls?: readonly (WireToolCall | null)[] | null;
}

export interface WireToolCall {
  readonly index?: number | null;
  readonly id?: string | null;
  readonly function?: { readonly name?: string | null; readonly arguments?: unknown } | null;
  readonly extra_content?: { readonly google?: { readonly thought_signature?: string | null } | null } | null;
}

export interface WireUsage {
  readonly prompt_tokens?: number | null;
  readonly completion_tokens?: number | null;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number | null } | null;
  /** Sent by DeepSeek. */
  readonly prompt_cache_hit_tokens?: number | null;
  readonly completion_tokens_details?: {
    readonly reasoning_tokens?: number | null;
    readonly accepted_prediction_tokens?: number | null;
    readonly rejected_prediction_tokens?: number | null;
  } | null;
}
