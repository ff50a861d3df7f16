/** Starts traces: decides which runs are traced, and continues the traces of callers. */
import { randomBytes, randomInt } from "node:crypto";
import { systemTime } from "../lib/clock.ts";
import { type Cleaner, type ContentMode, createCleaner } from "./content.ts";
import type {
  Attributes,
  Entity,
  Span,
  SpanContext,
  SpanData,
  SpanEvent,
  SpanKind,
  SpanOrigin,
  SpanSink,
  SpanStatus,
  TraceData,
} from "./span.ts";
import { acceptTracestate, parseTraceparent, type Traceparent } from "./traceparent.ts";

const DIGITS = 3;
const MASK = 0xfff;
/** Mask of the counter: six hexadecimal digits. */
const COUNTER = 0xffffff;

const hex = (value: number, length: number) => value.toString(16).padStart(length, "0");

interface TraceIds {
  readonly traceId: string;
  readonly spanId: string;
}

/**
 * Ids of traces and spans. They contain the time at which they were created, so that traces, which are stored in order of time, are
 * found without an index. They end in a counter with a random start, which costs a tenth of a random id.
 */
class Ids {
  /** Every number of three hexadecimal digits, as text. */
  readonly #digits = Array.from({ length: MASK + 1 }, (_, value) => hex(value, DIGITS));
  readonly #process = randomBytes(7).toString("hex");
  #count = randomInt(COUNTER);
  #millisecond = -1;
  /** The prefix of ids in this millisecond. */
  #trace = "";
  #span = "";

  /** @param time milliseconds since 1970 */
  trace(time: number): TraceIds {
    this.#setTime(Math.floor(time));
    const count = this.#nextCount();
    return { traceId: this.#trace + count, spanId: this.#span + count };
  }

  span(time: number): string {
    this.#setTime(Math.floor(time));
    return this.#span + this.#nextCount();
  }

  #setTime(millisecond: number): void {
    if (millisecond === this.#millisecond) return;
    this.#millisecond = millisecond;
    const digits = hex(millisecond, 12);
    this.#trace = digits + this.#process;
    this.#span = digits.slice(-10);
  }

  #nextCount(): string {
    const count = this.#count;
    this.#count = (count + 1) & COUNTER;
    return this.#digits[count >>> 12]! + this.#digits[count & MASK]!;
  }
}

/** How often the system clock is read again, because it may be set while the process runs. */
const SYNC_INTERVAL_MS = 60_000;

/** The clock of spans: milliseconds since 1970 with fractions, monotonic within a process. */
class SpanClock {
  #offset = 0;
  #next = Number.NEGATIVE_INFINITY;

  now(): number {
    const now = performance.now();
    if (now >= this.#next) {
      this.#next = now + SYNC_INTERVAL_MS;
      this.#offset = systemTime() - now;
    }
    return now + this.#offset;
  }
}

/** What the traces of a service share. */
interface Tracing {
  readonly clock: SpanClock;
  readonly ids: Ids;
  readonly cleaner: Cleaner;
  /** At least one sink. */
  readonly sinks: readonly SpanSink[];
}

const UNSET: SpanStatus = Object.freeze({ code: 0 });
/** A running trace hands its ended spans to the sinks when there are this many. */
const MAX_HELD_SPANS = 256;
/** Most events and links of one span; more of them are dropped. */
const MAX_EVENTS = 128;

/** A trace while it is recorded, as its spans below. The traced code and the sinks hold the same objects. */
class LiveTrace implements TraceData {
  readonly tracing: Tracing;
  readonly traceId: string;
  readonly foreign: boolean;
  readonly tracestate: string;
  readonly userId: string | null;
  readonly root: LiveSpan;
  spans: SpanData[];
  open = 0;
  handed = 0;
  newer: TraceData | null = null;
  older: TraceData | null = null;
  #over = false;

  /**
   * @param caller the span of the calling service whose trace is continued
   * @param tracestate the header that the calling service sent with it
   */
  constructor(
    tracing: Tracing,
    name: string,
    kind: SpanKind,
    entity: Entity,
    userId: string | null,
    caller: SpanContext | null,
    tracestate = "",
  ) {
    const start = tracing.clock.now();
    const { traceId, spanId } = tracing.ids.trace(start);
    this.tracing = tracing;
    this.traceId = caller === null ? traceId : caller.traceId;
    this.foreign = caller !== null;
    this.tracestate = tracestate;
    this.userId = userId;
    this.root = new LiveSpan(this, spanId, caller === null ? null : caller.spanId, name, kind, entity, start);
    this.spans = [this.root];
    this.open = 1;
    for (const sink of tracing.sinks) {
      sink.began(this);
      if (sink.live) sink.started(this, this.root);
    }
  }

  child(parent: LiveSpan, name: string, kind: SpanKind, entity: Entity): LiveSpan {
    const { clock, ids, sinks } = this.tracing;
    const start = clock.now();
    const span = new LiveSpan(this, ids.span(start), parent.spanId, name, kind, entity, start);
    // The trace has been handed over: a span that starts now is not recorded.
    if (this.#over) return span;
    this.spans.push(span);
    this.open++;
    for (const sink of sinks) if (sink.live) sink.started(this, span);
    return span;
  }

  ended(span: LiveSpan): void {
    if (this.#over) return;
    const { sinks } = this.tracing;
    this.open--;
    for (const sink of sinks) if (sink.live) sink.ended(this, span);
    if (this.open === 0) {
      this.#over = true;
      for (const sink of sinks) sink.take(this, this.spans, true);
    } else if (this.spans.length - this.open >= MAX_HELD_SPANS) this.#handOver();
  }

  #handOver(): void {
    const { spans } = this;
    const over = spans.filter(({ end }) => end !== 0);
    for (const sink of this.tracing.sinks) sink.take(this, over, false);
    this.spans = spans.filter(({ end }) => end === 0);
    this.handed += over.length;
  }
}

class LiveSpan implements Span, SpanData {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string | null;
  readonly name: string;
  readonly kind: SpanKind;
  readonly entity: Entity;
  readonly start: number;
  end = 0;
  attributes: Attributes | null = null;
  status: SpanStatus = UNSET;
  events: SpanEvent[] | null = null;
  links: SpanContext[] | null = null;
  readonly #trace: LiveTrace;

  constructor(
    trace: LiveTrace,
    spanId: string,
    parentSpanId: string | null,
    name: string,
    kind: SpanKind,
    entity: Entity,
    start: number,
  ) {
    this.#trace = trace;
    this.traceId = trace.traceId;
    this.spanId = spanId;
    this.parentSpanId = parentSpanId;
    this.name = name;
    this.kind = kind;
    this.entity = entity;
    this.start = start;
  }

  get tracestate(): string {
    return this.#trace.tracestate;
  }

  get wantsContent(): boolean {
    return this.#trace.tracing.cleaner.mode !== "none";
  }

  get wantsPrompts(): boolean {
    return this.#trace.tracing.cleaner.mode === "full";
  }

  begin(name: string, kind: SpanKind, entity: Entity): LiveSpan {
    return this.#trace.child(this, name, kind, entity.type === "tool" ? this.entity : entity);
  }

  child(name: string, kind: SpanKind): LiveSpan {
    return this.#trace.child(this, name, kind, this.entity);
  }

  set(attributes: Attributes): void {
    if (this.end !== 0) return;
    if (this.attributes === null) this.attributes = attributes;
    else Object.assign(this.attributes, attributes);
  }

  clean(value: unknown): string | undefined {
    return this.#trace.tracing.cleaner.content(value);
  }

  elapsed(): number {
    return this.#trace.tracing.clock.now() - this.start;
  }

  content(name: string, value: unknown): void {
    if (this.end !== 0) return;
    const text = this.#trace.tracing.cleaner.content(value);
    if (text === undefined) return;
    this.attributes ??= {};
    this.attributes[name] = text;
  }

  event(name: string, attributes: Attributes | null = null): void {
    if (this.end !== 0) return;
    this.events ??= [];
    if (this.events.length < MAX_EVENTS) this.events.push({ name, time: this.#trace.tracing.clock.now(), attributes });
  }

  link({ traceId, spanId }: SpanContext): void {
    if (this.end !== 0) return;
    this.links ??= [];
    if (this.links.length < MAX_EVENTS) this.links.push({ traceId, spanId });
  }

  finish(status: SpanStatus = UNSET): void {
    if (this.end !== 0) return;
    // The system clock may have been set back meanwhile.
    this.end = Math.max(this.#trace.tracing.clock.now(), this.start);
    this.status = status;
    this.#trace.ended(this);
  }

  fail(type: string, message: string): void {
    if (this.end !== 0) return;
    this.set({ "error.type": type });
    this.finish({ code: 2, message: this.#trace.tracing.cleaner.message(message) });
  }
}

interface TracerSettings {
  /** Share of runs that are traced, 0 to 1. */
  readonly sample: number;
  /** How much of inputs and outputs is recorded. */
  readonly content: ContentMode;
  /** Texts that are blanked in spans, unless `content` is `full`. */
  readonly secrets: readonly string[];
}

/** @returns null when nothing is sampled or there is no sink: then tracing costs nothing */
export function createTracer({ sample, content, secrets }: TracerSettings, sinks: readonly SpanSink[]): Tracer | null {
  if (sample <= 0 || sinks.length === 0) return null;
  const tracing = { clock: new SpanClock(), ids: new Ids(), cleaner: createCleaner(content, secrets), sinks };
  return new Tracer(sample, tracing);
}

export class Tracer implements SpanOrigin {
  readonly #sample: number;
  readonly #tracing: Tracing;

  constructor(sample: number, tracing: Tracing) {
    this.#sample = sample;
    this.#tracing = tracing;
  }

  begin(name: string, kind: SpanKind, entity: Entity, userId?: string): Span | null {
    return this.#root(name, kind, entity, userId, null);
  }

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
