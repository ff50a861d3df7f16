/** A chain of models: each is called again when it fails, then the next one. Once a part is visible, a failure is final. */
import type { LanguageModelV3CallOptions } from "@ai-sdk/provider";
import type { Logger } from "pino";
import type { Aborts } from "../lib/aborts.ts";
import { modelSpan } from "../observability/attributes.ts";
import type { ModelMeter } from "../observability/metrics/named.ts";
import type { Span } from "../observability/span.ts";
import type { ModelPrices, ModelTimeouts } from "../plugin/plugin.ts";
import { ChainedAnswer } from "./chained-answer.ts";
import type { Circuit } from "./circuit.ts";
import type { PromptFiles } from "./files/prompt-files.ts";
import { splitModelName } from "./names.ts";
import type { PartSource, StreamingModel } from "./part-source.ts";
import type { ThinkHabit } from "./think-tags.ts";
import { createTokenScale, type TokenScale } from "./token-scale.ts";

export type { PartBatch } from "./part-source.ts";

/**
 * The parts of one answer. A failure is thrown as ServiceError `provider_failed`; its cause is the provider's own error, which
 * only the log shows. An abort is thrown as the signal's reason.
 */
export interface ModelStream extends PartSource {
  /** The model that answers, as `provider/model`: after a fallback the one that stands in. */
  readonly id: string;
  /** Its prices, where the manifest has them. */
  readonly prices: ModelPrices | undefined;
  /** Its metrics. */
  readonly meter: ModelMeter | undefined;
  /** What its answers have taught of its tokens. */
  readonly tokens: TokenScale;
}

/** The options of one model call. Failures are logged to `logger`. Default: the chain's own. */
export interface ModelCallOptions extends LanguageModelV3CallOptions {
  /** What `abortSignal` says, for models that need no signal. A copy of the options may leave it out. */
  readonly aborts?: Aborts | undefined;
  readonly logger?: ChainSettings["logger"];
  /** Changes the prompt after a failure that lies in it; the same model, whose tokens these are, is called again when it says true. */
  adapt?(error: unknown, tokens: TokenScale): boolean;
}

export interface ModelChain {
  /** `provider/model` of the first entry. */
  readonly id: string;
  /** Its two parts: a key of the manifest, and what the provider calls the model. */
  readonly provider: string;
  readonly model: string;
  /** Tokens of prompt and answer together that the first model takes, as far as it is known. */
  readonly contextWindow: number | undefined;
  /** What the first model's answers have taught of its tokens. */
  readonly tokens: TokenScale;
  /** Name of the spans of its calls. */
  readonly spanName: string;
  /**
   * Calls the model. Resolves when it has accepted the call: response headers may be sent. A stream that fails before its
   * first visible part is still retried, inside `next`.
   *
   * @param span of the call: retries and fallbacks become events of it
   * @throws ServiceError `provider_failed` when no model of the chain answers; the signal's reason once it aborts
   */
  stream(options: ModelCallOptions, span?: Span | null): Promise<ModelStream>;
}

/** One entry of a chain. */
export interface ChainedModel {
  /** `provider/model`, as in the manifest. */
  readonly id: string;
  readonly model: StreamingModel;
  /** Tries after the first. */
  readonly retries: number;
  /** Of a model that does not answer in batches. Such a model keeps to its time limits itself. */
  readonly timeouts?: ModelTimeouts;
  readonly circuit?: Circuit;
  readonly contextWindow?: number | undefined;
  /** Kept for all chains of the model. Default: kept for this one. */
  readonly tokens?: TokenScale;
  /** The metrics of its calls. */
  readonly meter?: ModelMeter;
  readonly prices?: ModelPrices | undefined;
  /** Where the key of its provider is set, for the log. */
  readonly keyPlace?: string;
  /** Set where text in `<think>` tags is reasoning. */
  readonly think?: ThinkHabit;
}

export type ScaledModel = ChainedModel & Required<Pick<ChainedModel, "tokens">>;

export interface ChainSettings {
  logger: Pick<Logger, "info" | "warn">;
  /** The first pause between two tries, in milliseconds; it doubles with each. */
  backoff?: number;
  /** Is told every warning of a provider. */
  warned?(model: string, text: string): void;
  /** Loads files for models that do not take their URLs. Default: URLs are handed on. */
  files?: PromptFiles;
}

/** @param models at least one */
export function createModelChain(models: readonly ChainedModel[], settings: ChainSettings): ModelChain {
  // Models that have answered in batches: these handle the abort signal themselves, so that it need not be listened to here.
  const batched = new WeakSet<StreamingModel>();
  const scaled = models.map((model): ScaledModel => ({ ...model, tokens: model.tokens ?? createTokenScale() }));
  const { id, contextWindow, tokens } = scaled[0]!;
  const named = splitModelName(id);
  return {
    id,
    ...named,
    contextWindow,
    tokens,
    spanName: modelSpan(named.model),
    stream: (options, span = null) => new ChainedAnswer(scaled, settings, options, batched, span).open(),
  };
}
