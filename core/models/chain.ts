/** A chain of models: each is retried when it fails, then the next one is called. After the first visible part a failure is final. */
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
import { type LearnedModel, learnedNothing } from "./learned.ts";
import { splitModelName } from "./names.ts";
import type { PartSource, StreamingModel } from "./part-source.ts";
import type { ThinkHabit } from "./think-tags.ts";

export type { PartBatch } from "./part-source.ts";

/**
 * The parts of one answer. A failure is thrown as ServiceError `provider_failed`; its cause is the provider's own error, which
 * only the log shows. An abort is thrown as the signal's reason.
 */
export interface ModelStream extends PartSource {
  /** The model that answers, as `provider/model`: after a fallback, not the first of the chain. */
  readonly id: string;
  /** Its prices, if the manifest has them. */
  readonly prices: ModelPrices | undefined;
  /** Its metrics. */
  readonly meter: ModelMeter | undefined;
  readonly learned: LearnedModel;
}

/** The options of one model call. Failures are logged to `logger`. Default: the chain's own. */
export interface ModelCallOptions extends LanguageModelV3CallOptions {
  /** The state of `abortSignal`, for models that need no signal. A copy of the options may lack it. */
  readonly aborts?: Aborts | undefined;
  readonly logger?: ChainSettings["logger"];
  /** Shortens the prompt after a failure that is due to its length. True: the same model, which `learned` describes, is called again. */
  shorten?(error: unknown, learned: LearnedModel): boolean;
}

export interface ModelChain {
  /** `provider/model` of the first entry. */
  readonly id: string;
  /** The two parts of `id`: a key of the manifest, and the provider's name of the model. */
  readonly provider: string;
  readonly model: string;
  /** Most tokens of prompt and answer together for the first model, if known. */
  readonly contextWindow: number | undefined;
  /** What is known of the first model. */
  readonly learned: LearnedModel;
  /** The name of the spans of its calls. */
  readonly spanName: string;
  /**
   * Calls the model. Resolves when it has accepted the call: response headers may be sent. A stream that fails before its
   * first visible part is still retried, inside `next`.
   *
   * @param span of the call: retries and fallbacks become its events
   * @throws ServiceError `provider_failed` when no model of the chain answers; the signal's reason once it aborts
   */
  stream(options: ModelCallOptions, span?: Span | null): Promise<ModelStream>;
}

/** One entry of a chain. */
export interface ChainedModel {
  /** `provider/model`, as in the manifest. */
  readonly id: string;
  readonly model: StreamingModel;
  /** Number of tries after the first. */
  readonly retries: number;
  /** Undefined for a model that answers in batches, which enforces its time limits itself. */
  readonly timeouts?: ModelTimeouts;
  readonly circuit?: Circuit;
  readonly contextWindow?: number | undefined;
  /** Shared by all chains of the model. Default: a new one for this chain. */
  readonly learned?: LearnedModel;
  /** The metrics of its calls. */
  readonly meter?: ModelMeter;
  readonly prices?: ModelPrices | undefined;
  /** Where the key of its provider is configured, for the log. */
  readonly keyPlace?: string;
  /** Set if text in `<think>` tags is reasoning. */
  readonly think?: ThinkHabit;
}

export type KnownModel = ChainedModel & Required<Pick<ChainedModel, "learned">>;

export interface ChainSettings {
  logger: Pick<Logger, "info" | "warn">;
  /** The first pause between two tries, in milliseconds; it doubles with each. */
  backoff?: number;
  /** Called with every warning of a provider. */
  warned?(model: string, text: string): void;
  /** Loads files for models that cannot load their URLs. Default: URLs are passed on. */
  files?: PromptFiles;
}

/** @param models at least one */
export function createModelChain(models: readonly ChainedModel[], settings: ChainSettings): ModelChain {
  // Models that have answered in batches: these handle the abort signal themselves, so this file need not listen to it.
  const batched = new WeakSet<StreamingModel>();
  const known = models.map((model): KnownModel => ({ learned: learnedNothing(), ...model }));
  const { id, contextWindow, learned } = known[0]!;
  const named = splitModelName(id);
  return {
    id,
    ...named,
    contextWindow,
    learned,
    spanName: modelSpan(named.model),
    stream: (options, span = null) => new ChainedAnswer(known, settings, options, batched, span).open(),
  };
}
