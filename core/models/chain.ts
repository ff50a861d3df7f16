/** A list of models that stand in for each other: retries and fallback, before the first visible byte only. */
import type { LanguageModelV3, LanguageModelV3CallOptions, LanguageModelV3StreamPart } from "@ai-sdk/provider";
import type { Logger } from "pino";
import { pause, untilAborted } from "../lib/abortable.ts";
import { caught } from "../lib/errors.ts";
import { isThenable } from "../lib/thenable.ts";
import { fallbackAttributes, MODEL_EVENTS, modelSpan, retryAttributes } from "../observability/attributes.ts";
import type { ModelMeter } from "../observability/metrics/named.ts";
import type { ModelOutcome } from "../observability/metrics/outcomes.ts";
import { UNTIMED } from "../observability/metrics/sampled-durations.ts";
import type { Span } from "../observability/span.ts";
import { classifyFailure, providerFailed } from "./failure.ts";
import { splitName } from "./names.ts";
import { type BatchedStreamResult, type PartBatch, type PartSource, StreamSource } from "./part-source.ts";

export type { PartBatch } from "./part-source.ts";

/**
 * The parts of one answer. What goes wrong is thrown as ServiceError `provider_failed`, with the provider's own error as
 * its cause, for the log alone. An abort is thrown as the signal's reason.
 */
export interface ModelStream extends PartSource {
  /** Counts of the model that answers. */
  readonly meter: ModelMeter | undefined;
}

/** What a model is asked, and where the log has it that it failed: default, the chain's own. */
export interface ModelCallOptions extends LanguageModelV3CallOptions {
  readonly logger?: ChainSettings["logger"];
}

export interface ModelChain {
  /** `provider/model` of the first entry. */
  readonly id: string;
  /** Its two parts: a key of the manifest, and what the provider calls the model. */
  readonly provider: string;
  readonly model: string;
  /** What the spans of its calls are called. */
  readonly spanName: string;
  /**
   * Calls the model. Resolves when it has accepted the call (response headers may go out). Until the first part that a
   * client sees, failures of the stream are still met with another try, inside `next`.
   *
   * @param span of the call: it is told of other tries
   * @throws ServiceError `provider_failed` when no model of the chain answers, the signal's reason once it aborts.
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
  /** What its calls are counted by. */
  readonly meter?: ModelMeter;
}

export interface ChainSettings {
  logger: Pick<Logger, "info" | "warn">;
  /** The first pause between two tries, in milliseconds; it doubles with each. */
  backoff?: number;
}

const BACKOFF = 500;
const LONGEST_BACKOFF = 8000;
/** A model that wants a longer rest is left for the next one of the chain. */
const LONGEST_RETRY_AFTER = 30_000;

/** Parts that no client gets to see: a failure after them may still be mended in silence. */
const UNSEEN: ReadonlySet<string> = new Set<LanguageModelV3StreamPart["type"]>([
  "stream-start",
  "response-metadata",
  "raw",
]);

/** How many of them are waited through: a model that says nothing else is not tried again. */
const MOST_UNSEEN = 1024;

/** @param models at least one */
export function createModelChain(models: readonly ChainedModel[], settings: ChainSettings): ModelChain {
  // Models that were seen to answer in batches: they promise to honour the signal, which saves listening to it here.
  const batched = new WeakSet<LanguageModelV3>();
  const { id } = models[0]!;
  const named = splitName(id);
  return {
    id,
    ...named,
    spanName: modelSpan(named.model),
    stream: (options, span = null) => new ChainedAnswer(models, settings, options, batched, span).open(),
  };
}

class ChainedAnswer implements ModelStream {
  readonly #models: readonly ChainedModel[];
  readonly #settings: ChainSettings;
  readonly #options: ModelCallOptions;
  readonly #batched: WeakSet<LanguageModelV3>;
  readonly #span: Span | null;
  /** Which model of the chain, and how often it was tried again. */
  #position = 0;
  #retries = 0;
  #source: PartSource | null = null;
  /** A client has seen something of this answer. */
  #visible = false;
  /** Unseen parts, kept until the first that is seen: another try would bring them again. */
  #held: LanguageModelV3StreamPart[] | null = null;
  #cancelled = false;
  /** When the try that goes on began (0: nobody asked), and whether one does. */
  #began = 0;
  #calling = false;

  constructor(
    models: readonly ChainedModel[],
    settings: ChainSettings,
    options: ModelCallOptions,
    batched: WeakSet<LanguageModelV3>,
    span: Span | null,
  ) {
    this.#models = models;
    this.#settings = settings;
    this.#options = options;
    this.#batched = batched;
    this.#span = span;
  }

  async open(): Promise<ModelStream> {
    for (;;) {
      try {
        const { model, meter } = this.#models[this.#position]!;
        this.#calling = true;
        // One that answers in batches may have its answer at hand.
        const timed = !this.#batched.has(model) || meter?.durations.begin() === true;
        this.#began = timed ? performance.now() : 0;
        if (!this.#batched.has(model)) await this.#call(model);
        else this.#read(model, (await model.doStream(this.#options)) as BatchedStreamResult);
        return this;
      } catch (thrown) {
        await this.#recover(thrown);
      }
    }
  }

  next(): PartBatch | null | Promise<PartBatch | null> {
    for (;;) {
      const source = this.#source;
      if (source === null) return null;
      let batch: PartBatch | null | PromiseLike<PartBatch | null>;
      try {
        batch = source.next();
      } catch (thrown) {
        return this.#failed(thrown);
      }
      if (isThenable(batch)) return this.#later(batch);
      if (batch === null) return this.#ended();
      if (this.#visible) return batch;
      const shown = this.#show(batch);
      if (shown !== null) return shown;
    }
  }

  get meter(): ModelMeter | undefined {
    return this.#models[this.#position]!.meter;
  }

  /** How a try ended: once for each. */
  #count(outcome: ModelOutcome): void {
    if (!this.#calling) return;
    this.#calling = false;
    const { meter } = this;
    if (meter === undefined) return;
    meter.calls.count(outcome);
    if (outcome !== "ok") return;
    meter.durations.ended(this.#began === 0 ? UNTIMED : performance.now() - this.#began, false);
  }

  cancel(): void {
    this.#count("aborted");
    this.#cancelled = true;
    this.#source?.cancel();
    this.#source = null;
  }

  async #call(model: LanguageModelV3): Promise<void> {
    if (this.#batched.has(model))
      return this.#read(model, (await model.doStream(this.#options)) as BatchedStreamResult);
    const signal = this.#options.abortSignal;
    // A provider may copy its options with a spread, which leaves out what a getter gives.
    const call = model.doStream({ ...this.#options, abortSignal: signal });
    const result = (await untilAborted(call, signal, discard)) as BatchedStreamResult;
    return this.#read(model, result);
  }

  #read(model: LanguageModelV3, result: BatchedStreamResult): void {
    if (result.batches !== undefined) {
      this.#batched.add(model);
      this.#source = result.batches;
    } else {
      this.#batched.delete(model);
      this.#source = new StreamSource(result.stream, this.#options.abortSignal);
    }
    // Cancelled while the call was on its way.
    if (this.#cancelled) this.cancel();
  }

  async #later(pending: PromiseLike<PartBatch | null>): Promise<PartBatch | null> {
    let batch: PartBatch | null;
    try {
      batch = await pending;
    } catch (thrown) {
      return this.#failed(thrown);
    }
    if (this.#cancelled) return null;
    if (batch === null) return this.#ended();
    return this.#visible ? batch : (this.#show(batch) ?? this.next());
  }

  /** The batch when it holds something to see, with what was held before; else null, and it is held. */
  #show(batch: PartBatch): PartBatch | null {
    const held = this.#held;
    const long = held !== null && held.length > MOST_UNSEEN;
    for (const part of batch) {
      if (UNSEEN.has(part.type) && !long) continue;
      this.#visible = true;
      this.#held = null;
      return held === null ? batch : [...held, ...batch];
    }
    if (held === null) this.#held = [...batch];
    else held.push(...batch);
    return null;
  }

  #ended(): PartBatch | null {
    this.#count("ok");
    this.#source = null;
    const held = this.#held;
    this.#held = null;
    return held;
  }

  async #failed(given: unknown): Promise<PartBatch | null> {
    const thrown = caught(given);
    if (this.#cancelled) return null;
    this.#source?.cancel();
    this.#source = null;
    this.#held = null;
    if (this.#visible) {
      const { abortSignal } = this.#options;
      const { reason } = classifyFailure(thrown);
      this.#count(abortSignal?.aborted ? "aborted" : reason);
      if (abortSignal?.aborted) throw abortSignal.reason;
      throw providerFailed(reason, thrown);
    }
    await this.#recover(thrown);
    await this.open();
    return this.next();
  }

  /** Returns when there is another try to make: after a pause with the same model, or at once with the next one. */
  async #recover(given: unknown): Promise<void> {
    const thrown = caught(given);
    const signal = this.#options.abortSignal;
    const failure = classifyFailure(thrown);
    this.#count(signal?.aborted ? "aborted" : failure.reason);
    if (signal?.aborted) throw signal.reason;
    const { id, retries } = this.#models[this.#position]!;
    const { logger = this.#settings.logger } = this.#options;
    const wait = failure.retryAfter ?? this.#backoff();
    if (failure.retry && this.#retries < retries && wait <= LONGEST_RETRY_AFTER) {
      this.#retries++;
      this.#span?.event(MODEL_EVENTS.retry, retryAttributes(id, failure.reason, this.#retries, wait));
      logger.info({ model: id, err: thrown, try: this.#retries, wait }, `model ${failure.reason}, trying again`);
      return pause(wait, signal);
    }
    const next = this.#models[this.#position + 1];
    if (next === undefined) throw providerFailed(failure.reason, thrown);
    this.#span?.event(MODEL_EVENTS.fallback, fallbackAttributes(id, failure.reason, next.id));
    logger.warn({ model: id, err: thrown, next: next.id }, `model ${failure.reason}, falling back`);
    this.#position++;
    this.#retries = 0;
  }

  /** Doubles with every try; a random half of it keeps clients that failed together from coming back together. */
  #backoff(): number {
    const longest = Math.min((this.#settings.backoff ?? BACKOFF) * 2 ** this.#retries, LONGEST_BACKOFF);
    return Math.round(longest * (0.5 + Math.random() / 2));
  }
}

/** A provider that did not look at the signal answers after all: nobody reads it. */
function discard(result: { stream: ReadableStream }): void {
  const { batches } = result as Partial<BatchedStreamResult>;
  if (batches !== undefined) batches.cancel();
  else result.stream.cancel().catch(() => undefined);
}
