/**
 * One answer of a model chain: calls the models, retries and falls back until something is visible, and passes the parts on.
 */
import type { LanguageModelV3CallOptions, SharedV3Warning } from "@ai-sdk/provider";
import type { Logger } from "pino";
import { pause, untilAborted } from "../lib/abortable.ts";
import { type Aborts, abortsOf } from "../lib/aborts.ts";
import { caught, invalid, type ServiceError } from "../lib/errors.ts";
import { backOff } from "../lib/retry.ts";
import { isThenable } from "../lib/thenable.ts";
import { UNTIMED } from "../observability/metrics/durations.ts";
import type { ModelMeter, ModelOutcome } from "../observability/metrics/meters.ts";
import type { ModelServer, ServedModel, Span } from "../observability/span.ts";
import type { ModelPrices, ModelTimeouts, PartBatch, PartSource } from "../plugin/plugin.ts";
import { CallLimits } from "./call-limits.ts";
import type { Circuit } from "./circuit.ts";
import { classifyFailure, type ModelFailure, modelsUnavailable, providerFailed, refusedPart } from "./failure.ts";
import { hasFileUrls, type PromptFiles } from "./files/prompt-files.ts";
import {
  HeldParts,
  isBatched,
  isShownAtOnce,
  type StreamingModel,
  type StreamingResult,
  StreamSource,
} from "./part-source.ts";
import { type LearnedModel, type Refused, refusedFile, remember, rewritten, withRefusal } from "./refusals.ts";
import { warningText } from "./settings-problems.ts";
import { type ThinkHabit, ThinkTags } from "./think-tags.ts";

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
  /** For traces. */
  readonly served: ServedModel;
}

/** The options of one model call. Failures are logged to `logger`. Default: the chain's own. */
export interface ModelCallOptions extends LanguageModelV3CallOptions {
  /** The state of `abortSignal`, for models that need no signal. A copy of the options may lack it. */
  readonly aborts?: Aborts | undefined;
  readonly logger?: ChainSettings["logger"];
  /** Shortens the prompt after a failure that is due to its length. True: the same model, which `learned` describes, is called again. */
  shorten?(error: unknown, learned: LearnedModel): boolean;
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
  /** Default: known by the name of the provider only. */
  readonly server?: ModelServer;
}

export interface KnownModel extends ChainedModel {
  readonly learned: LearnedModel;
  readonly served: ServedModel;
}

export interface ChainSettings {
  logger: Pick<Logger, "info" | "warn">;
  /** The first pause between two tries, in milliseconds; it doubles with each. */
  backoff?: number;
  /** Called with every warning of a provider. */
  warned?(model: string, text: string): void;
  /** Loads files for models that cannot load their URLs. Default: URLs are passed on. */
  files?: PromptFiles;
}

/** Failures that may be due to the prompt: llama.cpp answers 500 to a file that its model does not take. */
const REFUSED: ReadonlySet<ModelFailure["reason"]> = new Set(["refused the request", "unavailable"]);

/** Most refusals from which one call learns: each is another try. */
const MAX_TRIED = 8;
/** Between two tries of one model. */
const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 8_000;
/** When a model asks for a longer pause, the next one of the chain is called. */
const MAX_RETRY_AFTER_MS = 30_000;

export class ChainedAnswer implements ModelStream {
  readonly #models: readonly KnownModel[];
  readonly #settings: ChainSettings;
  readonly #options: ModelCallOptions;
  readonly #batched: WeakSet<StreamingModel>;
  readonly #span: Span | null;
  readonly #hasFileUrls: boolean;
  /** Index of the model in the chain, and how often it has been retried. */
  #position = 0;
  #retries = 0;
  #source: PartSource | null = null;
  /** Whether a client has seen a part of this answer. */
  #visible = false;
  /** Created when a part has to be held back. */
  #held: HeldParts | null = null;
  #cancelled = false;
  /** When the current try started (0 if it is not timed), and whether there is one. */
  #startedAt = 0;
  #calling = false;
  /** The time limits of the current try; null when its model enforces them itself. */
  #limits: CallLimits | null = null;
  /** Whether the current try is the trial of a model whose circuit is open. */
  #isTrial = false;
  /** What the current model has refused, in this call too, and how often that was; null when this call has not been refused. */
  #tried: { readonly refused: Refused; readonly count: number } | null = null;
  /** The last failure of the model that was called last. */
  #failure: ServiceError | null = null;

  constructor(
    models: readonly KnownModel[],
    settings: ChainSettings,
    options: ModelCallOptions,
    batched: WeakSet<StreamingModel>,
    span: Span | null,
  ) {
    this.#models = models;
    this.#settings = settings;
    this.#options = options;
    this.#batched = batched;
    this.#span = span;
    this.#hasFileUrls = settings.files !== undefined && hasFileUrls(options.prompt);
  }

  async open(): Promise<ModelStream> {
    for (;;) {
      const { model, meter, timeouts, learned } = this.#admit();
      const { refused } = this.#tried ?? learned;
      const isSent = refused.size === 0 && !this.#hasFileUrls;
      const options = isSent ? this.#options : await this.#adapted(model, refused);
      try {
        this.#calling = true;
        // A model that answers in batches may answer at once, which takes less time than reading the clock: only a sample is timed.
        const inBatches = this.#batched.has(model);
        const timed = !inBatches || meter?.durations.begin() === true;
        this.#startedAt = timed ? performance.now() : 0;
        if (inBatches) this.#open(model, await model.doStream(options), null);
        else await this.#call(model, options, new CallLimits(timeouts, this.#aborts));
        return this;
      } catch (thrown) {
        await this.#chooseNextTry(thrown);
      }
    }
  }

  /** The options of the call, without what the model refuses and with the files that it cannot load itself. */
  async #adapted(model: StreamingModel, refused: Refused): Promise<ModelCallOptions> {
    const { abortSignal: signal } = this.#options;
    try {
      let { prompt, tools } = rewritten(this.#options, refused);
      if (this.#hasFileUrls)
        prompt = (await this.#settings.files?.load(prompt, await model.supportedUrls, signal)) ?? prompt;
      if (prompt === this.#options.prompt && tools === this.#options.tools) return this.#options;
      // The signal may be given by a getter, which a spread leaves out.
      return { ...this.#options, prompt, ...(tools && { tools }), ...(signal && { abortSignal: signal }) };
    } catch (thrown) {
      if (this.#isTrial) this.#model.circuit?.abandoned();
      throw thrown;
    }
  }

  /** Remembers what the provider refused, now that it has taken the request without it. */
  #keep(accepted: Refused): void {
    this.#tried = null;
    for (const added of remember(this.learned.refused, accepted))
      this.#logger.warn({ model: this.id, ...added }, "the model refuses this: it is sent in another form from now on");
  }

  get #logger() {
    return this.#options.logger ?? this.#settings.logger;
  }

  get #aborts(): Aborts | undefined {
    return this.#options.aborts ?? abortsOf(this.#options.abortSignal);
  }

  /** The model of the next try: the first one, from the current position on, whose circuit admits a call. */
  #admit(): KnownModel {
    for (let position = this.#position; position < this.#models.length; position++) {
      const model = this.#models[position]!;
      const { circuit } = model;
      this.#isTrial = circuit?.isClosed === false;
      if (this.#isTrial && !circuit?.admits()) continue;
      if (position !== this.#position) {
        this.#retries = 0;
        this.#tried = null;
      }
      this.#position = position;
      return model;
    }
    if (this.#failure !== null) throw this.#failure;
    throw modelsUnavailable(Math.min(...this.#models.map(({ circuit }) => circuit?.waits() ?? 0)));
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

  get #model(): KnownModel {
    return this.#models[this.#position]!;
  }

  get id(): string {
    return this.#model.id;
  }

  get prices(): ModelPrices | undefined {
    return this.#model.prices;
  }

  get meter(): ModelMeter | undefined {
    return this.#model.meter;
  }

  get learned(): LearnedModel {
    return this.#model.learned;
  }

  get served(): ServedModel {
    return this.#model.served;
  }

  /** Counts the outcome of a try, once per try. */
  #count(outcome: ModelOutcome, failure?: ModelFailure): void {
    if (!this.#calling) return;
    this.#calling = false;
    this.#limits?.end();
    this.#limits = null;
    const { meter, circuit } = this.#model;
    if (outcome === "ok") circuit?.succeeded();
    else if (failure !== undefined && outcome !== "aborted") circuit?.failed(failure);
    else if (this.#isTrial) circuit?.abandoned();
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

  async #call(model: StreamingModel, options: ModelCallOptions, limits: CallLimits): Promise<void> {
    this.#limits = limits;
    const limited = Object.defineProperty({ ...options, [LIMITS]: limits }, "abortSignal", LIMITED);
    this.#open(model, await untilAborted(model.doStream(limited), limits, discard), limits);
  }

  /** @param limits time limits of the call; null when the model enforces them itself */
  #open(model: StreamingModel, result: StreamingResult, limits: CallLimits | null): void {
    const { timeouts, think } = this.#model;
    if (isBatched(result)) {
      limits?.untime();
      this.#batched.add(model);
      this.#source = result.batches;
    } else {
      this.#batched.delete(model);
      this.#source = new StreamSource(result, limits ?? new CallLimits(timeouts, this.#aborts));
    }
    if (think !== undefined) this.#source = new ThinkTags(this.#source, think);
    // The answer was cancelled during the call.
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

  /** The batch with all that was held back, or null when nothing of it is for clients. */
  #releaseVisible(batch: PartBatch): PartBatch | null {
    if (this.#held === null && !isShownAtOnce(batch)) this.#held = new HeldParts((warnings) => this.#warn(warnings));
    const released = this.#held === null ? batch : this.#held.release(batch);
    if (released === null) return null;
    this.#visible = true;
    this.#held = null;
    // Not before: a provider may accept the call, and refuse the prompt in the place of its answer.
    if (this.#tried !== null) this.#keep(this.#tried.refused);
    if (this.#isTrial) this.#model.circuit?.began();
    return released;
  }

  #warn(warnings: readonly SharedV3Warning[]): void {
    const { id } = this;
    for (const warning of warnings) {
      const text = warningText(warning);
      this.#span?.event("model.warning", { "model.id": id, "warning.message": text });
      this.#settings.warned?.(id, text);
    }
  }

  #ended(): PartBatch | null {
    this.#count("ok");
    this.#source = null;
    return this.#held?.take() ?? null;
  }

  async #failed(rejection: unknown): Promise<PartBatch | null> {
    const thrown = caught(rejection);
    if (this.#cancelled) return null;
    this.#source?.cancel();
    this.#source = null;
    this.#held = null;
    if (this.#visible) {
      const { abortSignal } = this.#options;
      const failure = classifyFailure(thrown);
      this.#count(abortSignal?.aborted ? "aborted" : failure.reason, failure);
      if (abortSignal?.aborted) throw abortSignal.reason;
      throw providerFailed(failure, thrown, this.#model);
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
    this.#count(signal?.aborted ? "aborted" : failure.reason, failure);
    if (signal?.aborted) throw signal.reason;
    const { id, retries } = this.#model;
    if (this.#learn(thrown, failure) || this.#options.shorten?.(thrown, this.learned)) return;
    const part = refusedPart(thrown, this.#options.tools);
    this.#failure = providerFailed(failure, thrown, this.#model, part);
    const logger = this.#logger;
    const wait = failure.retryAfter ?? backOff(this.#retries, this.#settings.backoff ?? FIRST_PAUSE_MS, MAX_PAUSE_MS);
    if (this.#isWorthRetrying(failure) && this.#retries < retries && wait <= MAX_RETRY_AFTER_MS) {
      this.#retries++;
      this.#span?.event("model.retry", {
        "model.id": id,
        "error.type": failure.reason,
        "retry.attempt": this.#retries,
        "retry.delay": wait,
      });
      logger.info({ model: id, err: thrown, try: this.#retries, wait }, `model ${failure.reason}, trying again`);
      return pause(wait, signal);
    }
    const next = this.#models[this.#position + 1];
    if (next === undefined || !failure.fallback) throw this.#fileRefused(thrown, failure) ?? this.#failure;
    this.#span?.event("model.fallback", {
      "model.id": id,
      "error.type": failure.reason,
      "fallback.model": next.id,
    });
    logger.warn({ model: id, err: thrown, next: next.id }, `model ${failure.reason}, falling back`);
    this.#position++;
    this.#retries = 0;
    this.#tried = null;
  }

  /** Whether the same model may take the request without what its provider has refused in it. */
  #learn(thrown: unknown, { reason }: ModelFailure): boolean {
    const { refused, count } = this.#tried ?? { refused: this.learned.refused, count: 0 };
    const more = REFUSED.has(reason) && count < MAX_TRIED ? withRefusal(refused, thrown, this.#options) : null;
    if (more !== null) this.#tried = { refused: more, count: count + 1 };
    return more !== null;
  }

  /** The client's mistake, when what it sends now has a file that is refused. */
  #fileRefused(cause: unknown, { reason }: ModelFailure): ServiceError | null {
    const file = REFUSED.has(reason) ? refusedFile(cause, this.#options.prompt) : null;
    if (file === null) return null;
    const { id } = this.#model;
    return invalid(`part ${file.part} of the last message: ${id} does not take this file (${file.mediaType})`, {
      cause,
    });
  }

  /** Whether to retry the same model: not one that has timed out once, if another one of the chain could answer. */
  #isWorthRetrying({ retry, reason }: ModelFailure): boolean {
    const isClosed = ({ circuit }: ChainedModel) => circuit === undefined || circuit.isClosed;
    if (!retry || !isClosed(this.#model)) return false;
    return reason !== "timed out" || !this.#models.slice(this.#position + 1).some(isClosed);
  }
}

const LIMITS = Symbol("limits");

/**
 * The signal of a call: a copy of its options has it too, and a model that reads none costs none. All calls have the same function: V8
 * turns an object with a getter of its own into a slow one.
 */
const LIMITED = {
  enumerable: true,
  configurable: true,
  get(this: { readonly [LIMITS]: CallLimits }) {
    return this[LIMITS].signal;
  },
};

/** Cancels the answer of a provider that has ignored the abort signal. */
function discard(result: StreamingResult): void {
  if (isBatched(result)) result.batches.cancel();
  else result.stream.cancel().catch(() => undefined);
}
