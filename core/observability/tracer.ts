/** Starts traces: decides which runs are traced, and continues the traces of callers. */
import { SpanClock } from "./clock.ts";
import { type ContentMode, createCleaner } from "./content.ts";
import { Ids } from "./ids.ts";
import { LiveTrace, type Tracing } from "./live-span.ts";
import type { Entity, SpanSink } from "./sink.ts";
import type { Span, SpanKind, SpanOrigin } from "./span.ts";
import { acceptTracestate, parseTraceparent, type Traceparent } from "./traceparent.ts";

interface TracerSettings {
  /** Share of runs that are traced, 0 to 1. */
  readonly sample: number;
  /** How much of inputs and outputs is recorded. */
  readonly content: ContentMode;
  /** Texts that are blanked in spans, unless `content` is `full`. */
  readonly secrets: readonly string[];
}

export interface Tracer extends SpanOrigin {
  /**
   * Starts the span of a request. Continues a caller's trace when the header `traceparent` names one. `sample` decides in this case
   * too: a caller can prevent that its trace is recorded, but not force it.
   *
   * @param traceparent the header; an empty string without one
   * @param tracestate the header beside it
   */
  continue(
    traceparent: string,
    name: string,
    kind: SpanKind,
    entity: Entity,
    userId: string | undefined,
    tracestate?: string,
  ): Span | null;
}

/** @returns null when nothing is sampled or there is no sink: then tracing costs nothing */
export function createTracer({ sample, content, secrets }: TracerSettings, sinks: readonly SpanSink[]): Tracer | null {
  if (sample <= 0 || sinks.length === 0) return null;
  const tracing = { clock: new SpanClock(), ids: new Ids(), cleaner: createCleaner(content, secrets), sinks };
  return new SamplingTracer(sample, tracing);
}

class SamplingTracer implements Tracer {
  readonly #sample: number;
  readonly #tracing: Tracing;

  constructor(sample: number, tracing: Tracing) {
    this.#sample = sample;
    this.#tracing = tracing;
  }

  begin(name: string, kind: SpanKind, entity: Entity, userId?: string): Span | null {
    return this.#root(name, kind, entity, userId, null);
  }

  continue(
    traceparent: string,
    name: string,
    kind: SpanKind,
    entity: Entity,
    userId: string | undefined,
    tracestate = "",
  ): Span | null {
    const caller = traceparent === "" ? null : parseTraceparent(traceparent);
    if (caller !== null && !caller.sampled) return null;
    return this.#root(name, kind, entity, userId, caller, caller === null ? "" : acceptTracestate(tracestate));
  }

  #root(
    name: string,
    kind: SpanKind,
    entity: Entity,
    userId: string | undefined,
    caller: Traceparent | null,
    tracestate = "",
  ): Span | null {
    if (this.#sample < 1 && Math.random() >= this.#sample) return null;
    return new LiveTrace(this.#tracing, name, kind, entity, userId ?? null, caller, tracestate).root;
  }
}
