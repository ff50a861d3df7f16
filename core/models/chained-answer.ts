/**
 * One answer of a model chain: calls the models, tries again and falls back until something is visible, and passes the parts on.
 */
import type { LanguageModelV3, LanguageModelV3StreamPart } from "@ai-sdk/provider";
import { pause, untilAborted } from "../lib/abortable.ts";
import { caught } from "../lib/errors.ts";
import { isThenable } from "../lib/thenable.ts";
import { fallbackAttributes, MODEL_EVENTS, retryAttributes } from "../observability/attributes.ts";
import type { ModelMeter } from "../observability/metrics/named.ts";
import type { ModelOutcome } from "../observability/metrics/outcomes.ts";
import { UNTIMED } from "../observability/metrics/sampled-durations.ts";
import type { Span } from "../observability/span.ts";
import type { ChainedModel, ChainSettings, ModelCallOptions, ModelStream } from "./chain.ts";
import { classifyFailure, providerFailed } from "./failure.ts";
import { type BatchedStreamResult, type PartBatch, type PartSource, StreamSource } from "./part-source.ts";
import { ThinkTags } from "./think-tags.ts";

/** The first pause between two tries. */
const BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 8000;
/** When a model asks for a longer pause, the next one of the chain is called. */
const MAX_RETRY_AFTER_MS = 30_000;

/** Parts that are not sent to clients: after them another try is still possible. */
const INVISIBLE_PARTS: ReadonlySet<string> = new Set<LanguageModelV3StreamPart["type"]>([
  "stream-start",
  "response-metadata",
  "raw",
]);

/** How many of them are held back. After more, a failure is final. */
const MAX_INVISIBLE_PARTS = 1024;

export class ChainedAnswer implements ModelStream {
  readonly #models: readonly ChainedModel[];
  readonly #settings: ChainSettings;
  readonly #options: ModelCallOptions;
  readonly #batched: WeakSet<LanguageModelV3>;
  readonly #span: Span | null;
  /** Index of the model in the chain, and how often it has been retried. */
  #position = 0;
  #retries = 0;
  #source: PartSource | null = null;
  /** Whether a client has seen a part of this answer. */
  #visible = false;
  /** Invisible parts, held back until the first visible one: after a retry they would come twice. */
  #held: LanguageModelV3StreamPart[] | null = null;
  #cancelled = false;
  /** When the current try began (0 if it is not timed), and whether there is one. */
  #startedAt = 0;
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
        // Models that answer in batches may answer at once, which takes less time than reading the clock: only some are timed.
        const timed = !this.#batched.has(model) || meter?.durations.begin() === true;
        this.#startedAt = timed ? performance.now() : 0;
        if (!this.#batched.has(model)) await this.#call(model);
        else this.#open(model, (await model.doStream(this.#options)) as BatchedStreamResult);
        return this;
      } catch (thrown) {
        await this.#chooseNextTry(thrown);
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
      if (isThenable(batch)) return this.#awaitBatch(batch);
      if (batch === null) return this.#ended();
      if (this.#visible) return batch;
      const shown = this.#releaseVisible(batch);
      if (shown !== null) return shown;
    }
  }

  get meter(): ModelMeter | undefined {
    return this.#models[this.#position]!.meter;
  }

  /** Counts how a try ended, once for each. */
  #count(outcome: ModelOutcome): void {
    if (!this.#calling) return;
    this.#calling = false;
    const { meter } = this;
    if (meter === undefined) return;
    meter.calls.count(outcome);
    if (outcome !== "ok") return;
    meter.durations.ended(this.#startedAt === 0 ? UNTIMED : performance.now() - this.#startedAt, false);
  }

  cancel(): void {
    this.#count("aborted");
    this.#cancelled = true;
    this.#source?.cancel();
    this.#source = null;
  }

  async #call(model: LanguageModelV3): Promise<void> {
    if (this.#batched.has(model))
      return this.#open(model, (await model.doStream(this.#options)) as BatchedStreamResult);
    const signal = this.#options.abortSignal;
    // A provider may copy its options with a spread, which leaves out what a getter gives.
    const call = model.doStream({ ...this.#options, abortSignal: signal });
    const result = (await untilAborted(call, signal, discard)) as BatchedStreamResult;
    return this.#open(model, result);
  }

  #open(model: LanguageModelV3, result: BatchedStreamResult): void {
    if (result.batches !== undefined) {
      this.#batched.add(model);
      this.#source = result.batches;
    } else {
      this.#batched.delete(model);
      this.#source = new StreamSource(result.stream, this.#options.abortSignal);
    }
    const { think } = this.#models[this.#position]!;
    if (think !== undefined) this.#source = new ThinkTags(this.#source, think);
    // It was cancelled during the call.
    if (this.#cancelled) this.cancel();
  }

  async #awaitBatch(pending: PromiseLike<PartBatch | null>): Promise<PartBatch | null> {
    let batch: PartBatch | null;
    try {
      batch = await pending;
    } catch (thrown) {
      return this.#failed(thrown);
    }
    if (this.#cancelled) return null;
    if (batch === null) return this.#ended();
    return this.#visible ? batch : (this.#releaseVisible(batch) ?? this.next());
  }

  /** The batch with all that was held back, if it has a visible part. Else null, and it is held back as well. */
  #releaseVisible(batch: PartBatch): PartBatch | null {
    const held = this.#held;
    const long = held !== null && held.length > MAX_INVISIBLE_PARTS;
    for (const part of batch) {
      if (INVISIBLE_PARTS.has(part.type) && !long) continue;
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

  async #failed(rejection: unknown): Promise<PartBatch | null> {
    const thrown = caught(rejection);
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
    await this.#chooseNextTry(thrown);
    await this.open();
    return this.next();
  }

  /** Chooses the model for the next try: the same one after a pause, or the next one at once. Throws when none is left. */
  async #chooseNextTry(rejection: unknown): Promise<void> {
    const thrown = caught(rejection);
    const signal = this.#options.abortSignal;
    const failure = classifyFailure(thrown);
    this.#count(signal?.aborted ? "aborted" : failure.reason);
    if (signal?.aborted) throw signal.reason;
    const { id, retries } = this.#models[this.#position]!;
    const { logger = this.#settings.logger } = this.#options;
    const wait = failure.retryAfter ?? this.#backoff();
    if (failure.retry && this.#retries < retries && wait <= MAX_RETRY_AFTER_MS) {
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

  /** Doubles with every try. Half of it is random, so that clients that failed together do not retry together. */
  #backoff(): number {
    const longest = Math.min((this.#settings.backoff ?? BACKOFF_MS) * 2 ** this.#retries, MAX_BACKOFF_MS);
    return Math.round(longest * (0.5 + Math.random() / 2));
  }
}

/** Cancels the answer of a provider that has ignored the abort signal. */
function discard(result: { stream: ReadableStream }): void {
  const { batches } = result as Partial<BatchedStreamResult>;
  if (batches !== undefined) batches.cancel();
  else result.stream.cancel().catch(() => undefined);
}
