/** A trace or a span by its id. Ids tell when it began, and segments are in the order of time: there is no index of ids. */
import type { SpanData } from "../observability/sink.ts";
import type { Attributes } from "../observability/span.ts";
import {
  foreignRows,
  secondRows,
  segmentFromForeignKey,
  segmentFromSecondKey,
  segmentKey,
  segmentsFrom,
} from "../storage/keys.ts";
import type { Store } from "../storage/store.ts";
import { isVisible } from "./filter.ts";
import type { Line } from "./line.ts";
import type { Recorder } from "./recorder.ts";
import { type Origin, SegmentReader } from "./segment.ts";
import { readHeads } from "./segment-rows.ts";
import { readSegment } from "./segments.ts";
import { NEARBY_MS, secondOf, timeOfSpan, timeOfTrace } from "./times.ts";
import type { FoundSpan } from "./wire.ts";

/** Spans of one trace that are shown, and characters that they have together: a caller may go on with one trace for ever. */
const MOST = 10_000;
const MOST_TEXT = 4 * 1024 * 1024;
/** Characters of a span beside its attributes. */
const BARE = 512;
/** Rows of one read. */
const PAGE = 64;
const DAY = 86_400_000;

export interface TraceSources {
  readonly store: Store;
  readonly recorder: Recorder;
  readonly origin: Origin;
}

/**
 * @returns at most 10,000 spans of about 4 Mi characters in the order they began; none: there is no such trace for this
 * caller
 */
export async function findTrace(
  places: TraceSources,
  traceId: string,
  owner: string | undefined,
): Promise<FoundSpan[]> {
  const { recorder, origin, store } = places;
  const found = new Gathered();
  const pending = recorder.pending();
  let done = false;
  for (const trace of recorder.open) {
    if (trace.traceId !== traceId) continue;
    if (isVisible(owner, trace.userId)) found.add(trace.spans, origin);
    done ||= !trace.foreign && trace.handed === 0;
  }
  const take = (reader: SegmentReader): boolean => {
    let whole = false;
    for (const line of reader.linesOf(traceId)) {
      if (isVisible(owner, line.userId)) found.add(line.spans, reader.origin);
      whole ||= isWhole(line);
    }
    return whole || found.full;
  };
  const known = new Set(pending.map(({ name }) => name));
  for (const { text } of pending) done = take(new SegmentReader(text)) || done;
  if (!done) {
    for await (const name of candidates(store, timeOfTrace(traceId), traceId)) {
      if (known.has(name)) continue;
      known.add(name);
      const reader = await readSegment(store, name);
      if (reader !== null && take(reader)) break;
    }
  }
  return found.spans.sort(inOrder);
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
    const reader = new SegmentReader(text);
    const line = reader.lineWith(spanId);
    if (line !== null) return spanOf(line, spanId, reader, owner);
  }
  for await (const name of candidates(store, timeOfSpan(spanId, Date.now()), null)) {
    if (known.has(name)) continue;
    known.add(name);
    const reader = await readSegment(store, name);
    const line = reader?.lineWith(spanId) ?? null;
    if (reader !== null && line !== null) return spanOf(line, spanId, reader, owner);
  }
  return null;
}

function spanOf(line: Line, spanId: string, reader: SegmentReader, owner: string | undefined): FoundSpan | null {
  if (!isVisible(owner, line.userId)) return null;
  const span = line.spans.find((each) => each.spanId === spanId)!;
  return { span, origin: reader.origin };
}

/** By their beginning; of those of one microsecond, a parent goes before its child. */
function inOrder({ span: one }: FoundSpan, { span: other }: FoundSpan): number {
  const between = Math.round(one.start * 1000) - Math.round(other.start * 1000);
  if (between !== 0) return between;
  return one.spanId === other.parentSpanId ? -1 : other.spanId === one.parentSpanId ? 1 : 0;
}

/** Of a trace whose id is ours, and whose spans are all in this line. */
const isWhole = ({ last, handed, spans }: Line): boolean => last && handed === 0 && spans[0]?.parentSpanId === null;

/** What was found of one trace, as far as it is shown. */
class Gathered {
  readonly #byId = new Map<string, FoundSpan>();
  #text = 0;

  get full(): boolean {
    return this.#byId.size >= MOST || this.#text >= MOST_TEXT;
  }

  get spans(): FoundSpan[] {
    return [...this.#byId.values()];
  }

  /** The root of a long trace may have been handed over twice. */
  add(spans: readonly SpanData[], origin: Origin): void {
    for (const span of spans) {
      if (this.full) return;
      if (this.#byId.has(span.spanId)) continue;
      this.#byId.set(span.spanId, { span, origin });
      this.#text += BARE + lengthOf(span.attributes);
    }
  }
}

/** Characters of attributes; those of events are few. */
function lengthOf(attributes: Attributes | null): number {
  let length = 0;
  for (const name in attributes) {
    const value = attributes[name];
    if (typeof value === "string") length += value.length;
    else if (Array.isArray(value)) for (const item of value) length += String(item).length;
  }
  return length;
}

/** Names of segments that may hold what began at `time`, the likely ones first; some of them twice. */
async function* candidates(store: Store, time: number, traceId: string | null): AsyncGenerator<string, void> {
  if (traceId !== null) yield* namesBelow(store, { prefix: foreignRows(traceId) }, segmentFromForeignKey);
  if (time > Date.now() + DAY) return;
  yield* headsNear(store, time);
  yield* namesBelow(store, { prefix: secondRows(secondOf(time)) }, segmentFromSecondKey);
}

/** Segments that were sealed soon after a time, and hold something that began by then. */
async function* headsNear(store: Store, time: number): AsyncGenerator<string, void> {
  let after = segmentsFrom(time);
  for (;;) {
    const heads = await readHeads(store, { after, before: segmentsFrom(time + NEARBY_MS + 1), limit: PAGE });
    for (const { name, head } of heads) if (head.from <= time) yield name;
    if (heads.length < PAGE) return;
    after = segmentKey(heads.at(-1)!.name);
  }
}

interface Rows {
  prefix: string;
  after?: string;
}

async function* namesBelow(store: Store, rows: Rows, nameOf: (key: string) => string): AsyncGenerator<string, void> {
  let range = rows;
  for (;;) {
    const found = await store.scan({ ...range, limit: PAGE });
    for (const { key } of found) yield nameOf(key);
    if (found.length < PAGE) return;
    range = { ...rows, after: found.at(-1)!.key };
  }
}
