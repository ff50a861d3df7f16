/** Errors of model providers that the core handles specially. */
import type { ModelTimeouts } from "./instances.ts";

/** Longest refusal that clients see. */
const MAX_REFUSAL_CHARACTERS = 4_000;

/** The model has declined to answer, in its own words. A retry would be declined again. */
export class ModelRefusal extends Error {
  override readonly name = "ModelRefusal";
  readonly refusal: string;

  constructor(refusal: string) {
    const words = refusal.slice(0, MAX_REFUSAL_CHARACTERS);
    super(`the model declined: ${words}`);
    this.refusal = words;
  }
}

/**
 * Too many calls wait for a connection to the provider. The limit is the service's own and nothing was sent, so an immediate retry
 * with the same model is pointless.
 */
export class ProviderQueueFull extends Error {
  override readonly name = "ProviderQueueFull";
  readonly statusCode = 429;
  readonly responseHeaders: Readonly<Record<string, string>> = { "retry-after": "1" };

  constructor(connections: number, queue: number) {
    super(`all ${connections} connections to the provider are busy, and ${queue} calls wait for one already`);
  }
}

/** One of the provider's `timeouts` was exceeded. Providers that answer in batches throw it themselves. */
export class ModelTimeout extends Error {
  /** The name that errors of `AbortSignal.timeout` have. */
  override readonly name = "TimeoutError";
  readonly limit: keyof ModelTimeouts;

  constructor(limit: keyof ModelTimeouts, milliseconds: number) {
    super(`the model took longer than timeouts.${limit} (${milliseconds} ms)`);
    this.limit = limit;
  }
}

/** Most bytes of one answer: its reader may have to buffer all of it, because an event is complete only with its last line. */
export const MAX_ANSWER_BYTES = 128 * 1024 * 1024;

export class AnswerTooLarge extends Error {
  override readonly name = "AnswerTooLarge";

  constructor() {
    super(`the provider's answer is larger than ${MAX_ANSWER_BYTES / 1024 / 1024} MiB`);
  }
}
