import { modelSpan, type ServedModel } from "../observability/attributes.ts";
import type { Span } from "../observability/span.ts";
import {
  ChainedAnswer,
  type ChainedModel,
  type ChainSettings,
  type KnownModel,
  type ModelCallOptions,
  type ModelStream,
} from "./chained-answer.ts";
import { type LearnedModel, learnedNothing } from "./learned.ts";
import { splitModelName } from "./names.ts";
import type { StreamingModel } from "./part-source.ts";

export interface ModelChain {
  /** `provider/model` of the first entry. */
  readonly id: string;
  /** The first entry, for traces. */
  readonly served: ServedModel;
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

/** @param models at least one */
export function createModelChain(models: readonly ChainedModel[], settings: ChainSettings): ModelChain {
  // Models that have answered in batches: these handle the abort signal themselves, so this file need not listen to it.
  const batched = new WeakSet<StreamingModel>();
  const known = models.map((given): KnownModel => {
    const { provider, model } = splitModelName(given.id);
    const { server = { provider }, learned = learnedNothing() } = given;
    return { ...given, learned, served: { id: given.id, model, server } };
  });
  const { id, contextWindow, learned, served } = known[0]!;
  return {
    id,
    served,
    contextWindow,
    learned,
    spanName: modelSpan(served.model),
    stream: (options, span = null) => new ChainedAnswer(known, settings, options, batched, span).open(),
  };
}
