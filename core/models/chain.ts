/** A chain of models: each is called again when it fails, then the next one. Once a part is visible, a failure is final. */
import type { LanguageModelV3, LanguageModelV3CallOptions } from "@ai-sdk/provider";
import type { Logger } from "pino";
import { modelSpan } from "../observability/attributes.ts";
import type { ModelMeter } from "../observability/metrics/named.ts";
import type { Span } from "../observability/span.ts";
import { ChainedAnswer } from "./chained-answer.ts";
import { splitModelName } from "./names.ts";
import type { PartSource } from "./part-source.ts";
import type { ThinkHabit } from "./think-tags.ts";

export type { PartBatch } from "./part-source.ts";

/**
 * The parts of one answer. A failure is thrown as ServiceError `provider_failed`; its cause is the provider's own error, which
 * only the log shows. An abort is thrown as the signal's reason.
 */
export interface ModelStream extends PartSource {
  /** The metrics of the model that answers. */
  readonly meter: ModelMeter | undefined;
}

/** The options of one model call. Failures are logged to `logger`. Default: the chain's own. */
export interface ModelCallOptions extends LanguageModelV3CallOptions {
  readonly logger?: ChainSettings["logger"];
}

export interface ModelChain {
  /** `provider/model` of the first entry. */
  readonly id: string;
  /** Its two parts: a key of the manifest, and what the provider calls the model. */
  readonly provider: string;
  readonly model: string;
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
  readonly model: LanguageModelV3;
  /** Tries after the first. */
  readonly retries: number;
  /** The metrics of its calls. */
  readonly meter?: ModelMeter;
  /** Set where text in `<think>` tags is reasoning. */
  readonly think?: ThinkHabit;
}

export interface ChainSettings {
  logger: Pick<Logger, "info" | "warn">;
  /** The first pause between two tries, in milliseconds; it doubles with each. */
  backoff?: number;
}

/** @param models at least one */
export function createModelChain(models: readonly ChainedModel[], settings: ChainSettings): ModelChain {
  // Models that have answered in batches: these handle the abort signal themselves, so that it need not be listened to here.
  const batched = new WeakSet<LanguageModelV3>();
  const { id } = models[0]!;
  const named = splitModelName(id);
  return {
    id,
    ...named,
    spanName: modelSpan(named.model),
    stream: (options, span = null) => new ChainedAnswer(models, settings, options, batched, span).open(),
  };
}
