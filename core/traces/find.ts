/** Finds a trace or a span by its id. Ids contain the time of their start, and segments are sorted by time: no index of ids is needed. */
import type { SpanData } from "../observability/sink.ts";
import type { Attributes } from "../observability/span.ts";
import {
  foreignRows,
  SEGMENTS,
  secondRows,
  segmentFromForeignKey,
  segmentFromSecondKey,
  segmentsFrom,
} from "../storage/keys.ts";
import { allRows } from "../storage/ranges.ts";
import type { Store } from "../storage/store.ts";
import { isVisible } from "./filter.ts";
import type { Recorder } from "./recorder.ts";
import { type Line, type Origin, SegmentReader } from "./segment.ts";
import { parseHead } from "./segment-rows.ts";
import { readSegment } from "./segments.ts";
import { NEARBY_MS, timeOfSpan, timeOfTrace, wholeSeconds } from "./times.ts";
import type { FoundSpan } from "./wire.ts";

/** Bounds of a trace that is shown, because a caller may add spans to a trace of its own forever. */
const MAX_SPANS = 10_000;
const MAX_CHARACTERS = 4 * 1024 * 1024;
/** Estimated characters of a span without its attributes. */
const SPAN_CHARACTERS = 512;
const ROWS_PER_READ = 64;
const DAY_MS = 86_400_000;

export interface TraceSources {
  readonly store: Store;
  readonly recorder: Recorder;
  readonly origin: Origin;
}

/**
 * @returns at most 10,000 spans of about 4 Mi characters, sorted by their start; none when there is no such trace for this
 * caller
 */
export async function findTrace(
  places: TraceSources,
  traceId: string,
  owner: string | undefined,
): Promise<FoundSpan[]> {
  const { recorder, origin, store } = places;
  const found = new CollectedSpans();
  const pending = recorder.pending();
  let done = false;
  for (const trace of recorder.open) {
    if (trace.traceId !== traceId) continue;
    if (isVisible(owner, trace.userId)) found.add(trace.spans, origin);
    done ||= !trace.foreign && trace.handed === 0;
  }
  const collect = (reader: SegmentReader): boolean => {
    let complete = false;
    for (const line of reader.linesOf(traceId)) {
      if (isVisible(owner, line.userId)) found.add(line.spans, line.origin);
      complete ||= isComplete(line);
    }
    return complete || found.full;
  };
  const known = new Set(pending.map(({ name }) => name));
  for (const { text } of pending) done = collect(await SegmentReader.of(await text)) || done;
  if (!done) {
    for await (const name of candidates(store, timeOfTrace(traceId), traceId)) {
      if (known.has(name)) continue;
      known.add(name);
      const reader = await readSegment(store, name);
      if (reader !== null && collect(reader)) break;
    }
  }
  return found.spans.sort(bySpanStart);
}

export async function findSpan(
  places: TraceSources,
  spanId: string,
  owner: string | undefined,
): Promise<FoundSpan | null> {
  const { recorder, origin, store } = places;
  const pending = recorder.pending();
  for (const trace of recorder.open) {
    const span = trace.spans.find((each) => each.spanId === spanId);
    if (span !== undefined) return isVisible(owner, trace.userId) ? { span, origin } : null;
  }
  const known = new Set(pending.map(({ name }) => name));
  for (const { text } of pending) {
    const line = (await SegmentReader.of(await text)).lineWith(spanId);
    if (line !== undefined) return spanInLine(line, spanId, owner);
  }
  for await (const name of candidates(store, timeOfSpan(spanId, Date.now()), null)) {
    if (known.has(name)) continue;
    known.add(name);
    const line = (await readSegment(store, name))?.lineWith(spanId);
    if (line !== undefined) return spanInLine(line, spanId, owner);
  }
  return null;
}

function spanInLine(line: Line, spanId: string, owner: string | undefined): FoundSpan | null {
  if (!isVisible(owner, line.userId)) return null;
  const span = line.spans.find((each) => each.spanId === spanId)!;
  return { span, origin: line.origin };
}

/** Sorts by start. Of spans that started in the same microsecond, a parent comes before its child. */
function bySpanStart({ span: one }: FoundSpan, { span: other }: FoundSpan): number {
  const between = Math.round(one.start * 1000) - Math.round(other.start * 1000);
  if (between !== 0) return between;
  return one.spanId === other.parentSpanId ? -1 : other.spanId === one.parentSpanId ? 1 : 0;
}

/** Whether the line contains all spans of its trace. Never so for a trace whose id came from a caller. */
const isComplete = ({ last, handed, spans }: Line): boolean => last && handed === 0 && spans[0]?.parentSpanId === null;

/** The spans found of one trace, up to the bounds. */
class CollectedSpans {
  readonly #byId = new Map<string, FoundSpan>();
  #text = 0;

  get full(): boolean {
    return this.#byId.size >= MAX_SPANS || this.#text >= MAX_CHARACTERS;
  }

  get spans(): FoundSpan[] {
    return [...this.#byId.values()];
  }

  /** Skips known spans: the root of a long trace may have been recorded twice. */
  add(spans: readonly SpanData[], origin: Origin): void {
    for (const span of spans) {
      if (this.full) return;
      if (this.#byId.has(span.spanId)) continue;
      this.#byId.set(span.spanId, { span, origin });
      this.#text += SPAN_CHARACTERS + attributesLength(span.attributes);
    }
  }
}

/** Characters of the attributes. Events are few, and not counted. */
function attributesLength(attributes: Attributes | null): number {
  let length = 0;
  for (const name in attributes) {
    const value = attributes[name];
    if (typeof value === "string") length += value.length;
    else if (Array.isArray(value)) for (const item of value) length += String(item).length;
  }
  return length;
}

/** Names of segments that may contain spans that started at `time`, the likely ones first. Some names occur twice. */
async function* candidates(store: Store, time: number, traceId: string | null): AsyncGenerator<string, void> {
  if (traceId !== null) yield* namesBelow(store, foreignRows(traceId), segmentFromForeignKey);
  if (time > Date.now() + DAY_MS) return;
  yield* headsNear(store, time);
  yield* namesBelow(store, secondRows(wholeSeconds(time)), segmentFromSecondKey);
}

/** Segments that were sealed soon after a time, and contain spans that started before it. */
async function* headsNear(store: Store, time: number): AsyncGenerator<string, void> {
  const range = { prefix: SEGMENTS, after: segmentsFrom(time), before: segmentsFrom(time + NEARBY_MS + 1) };
  for await (const rows of allRows(store, range, ROWS_PER_READ))
    for (const { name, head } of rows.map(parseHead)) if (head.from <= time) yield name;
}

async function* namesBelow(
  store: Store,
  prefix: string,
  parseName: (key: string) => string,
): AsyncGenerator<string, void> {
  for await (const rows of allRows(store, { prefix }, ROWS_PER_READ)) for (const { key } of rows) yield parseName(key);
}
