/** The traces that one principal may see. */
import type { SpanRecord, TraceDetail, TraceSummary } from "../../generated/types.ts";
import type { Principal } from "../identity/principal.ts";
import { notFound, type ServiceError } from "../lib/errors.ts";
import type { SpanData, TraceData } from "../observability/sink.ts";
import type { Attributes, Entity } from "../observability/span.ts";
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
import { type FilteredTrace, isVisible, matches, matchesHead, type TraceFilter, visibleOwner } from "./filter.ts";
import type { Recorder } from "./recorder.ts";
import type { Line, Origin, Segment } from "./segment.ts";
import { parseHead } from "./segment-rows.ts";
import { newestSegments, readSegment, SegmentReader, sealedAt } from "./segments.ts";
import { isSpanId, isTraceId, NEARBY_MS, timeOfSpan, timeOfTrace, wholeSeconds } from "./times.ts";
import type { TraceAccess, TraceQuery } from "./traces.ts";
import { buildTree, type FoundSpan, lastEnd, spanRecord, traceSummary } from "./wire.ts";

/** Bounds of a trace that is shown, because a caller may add spans to a trace of its own forever. */
const MAX_SPANS = 10_000;
const MAX_CHARACTERS = 4 * 1024 * 1024;
/** Estimated characters of a span without its attributes. */
const SPAN_CHARACTERS = 512;
const ROWS_PER_READ = 64;
const DAY_MS = 86_400_000;

interface TraceSources {
  readonly store: Store;
  readonly recorder: Recorder;
  readonly origin: Origin;
}

/**
 * Ids contain the time of their start, and segments are sorted by time: no index of ids is needed.
 *
 * @returns at most 10,000 spans of about 4 Mi characters, sorted by their start; none when there is no such trace for this
 * caller
 */
async function findTrace(places: TraceSources, traceId: string, owner: string | undefined): Promise<FoundSpan[]> {
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
  if (!done)
    for await (const reader of segmentsNear(store, pending, timeOfTrace(traceId), traceId)) if (collect(reader)) break;
  return found.spans.sort(bySpanStart);
}

async function findSpan(places: TraceSources, spanId: string, owner: string | undefined): Promise<FoundSpan | null> {
  const { recorder, origin, store } = places;
  const pending = recorder.pending();
  for (const trace of recorder.open) {
    const span = trace.spans.find((each) => each.spanId === spanId);
    if (span !== undefined) return isVisible(owner, trace.userId) ? { span, origin } : null;
  }
  for await (const reader of segmentsNear(store, pending, timeOfSpan(spanId, Date.now()), null)) {
    const line = reader.lineWith(spanId);
    if (line === undefined) continue;
    const span = line.spans.find((each) => each.spanId === spanId)!;
    return isVisible(owner, line.userId) ? { span, origin: line.origin } : null;
  }
  return null;
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

/** Segments that may contain spans that started at `time`, each once: those that are not written yet, and the likely ones of the store. */
async function* segmentsNear(
  store: Store,
  pending: readonly Segment[],
  time: number,
  traceId: string | null,
): AsyncGenerator<SegmentReader, void> {
  const known = new Set<string>();
  for (const { name, text } of pending) {
    known.add(name);
    yield SegmentReader.of(await text);
  }
  for await (const name of candidates(store, time, traceId)) {
    if (known.has(name)) continue;
    known.add(name);
    const reader = await readSegment(store, name);
    if (reader !== null) yield reader;
  }
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

/** The heads of segments show which ones need not be read, so that a filter with few matches is fast. */
async function listTraces(
  { store, recorder, origin }: TraceSources,
  filter: TraceFilter,
  limit: number,
  offset: number,
): Promise<TraceSummary[]> {
  const page: TraceSummary[] = [];
  let skip = offset;
  // Pending and open traces are read at the same time, so that a trace that ends is in exactly one of them.
  const pending = recorder.pending();
  for (const trace of recorder.open) {
    if (!matches(filter, openTraceFacts(trace)) || skip-- > 0) continue;
    const { root, userId, handed, spans } = trace;
    page.push(traceSummary(root, { origin, spanCount: handed + spans.length, end: 0, userId }));
    if (page.length === limit) return page;
  }
  skip = Math.max(0, skip);
  if (filter.status === "running") return page;
  for await (const segment of newestSegments(store, pending, filter.from ?? 0)) {
    const { head, name } = segment;
    const matching = matchesHead(filter, head, sealedAt(name));
    if (matching === "none") continue;
    if (matching === "all" && skip >= head.traces) {
      skip -= head.traces;
      continue;
    }
    const reader = await segment.read();
    if (reader === null) continue;
    for (const line of reader.lines()) {
      if (!line.last || !matches(filter, endedTraceFacts(line)) || skip-- > 0) continue;
      const { userId, handed, spans, origin } = line;
      const facts = { origin, spanCount: handed + spans.length, end: lastEnd(spans), userId };
      page.push(traceSummary(rootOf(line), facts));
      if (page.length === limit) return page;
    }
    skip = Math.max(0, skip);
  }
  return page;
}

const rootOf = ({ spans }: Line): SpanData => spans[0]!;

function openTraceFacts({ root, userId, spans }: TraceData): FilteredTrace {
  return { status: "running", userId, start: root.start, entities: () => entitiesOf(spans, [root.entity]) };
}

function endedTraceFacts(line: Line): FilteredTrace {
  const { start, status } = rootOf(line);
  const { userId, entities, spans } = line;
  return {
    status: status.code === 2 ? "error" : "completed",
    userId,
    start,
    entities: () => entitiesOf(spans, entities),
  };
}

function* entitiesOf(spans: readonly SpanData[], more: readonly Entity[]): Generator<Entity> {
  for (const { entity } of spans) yield entity;
  yield* more;
}

export class ScopedTraces implements TraceAccess {
  readonly #places: TraceSources;
  readonly #owner: string | undefined;

  constructor(places: TraceSources, principal: Principal) {
    this.#places = places;
    this.#owner = visibleOwner(principal);
  }

  list({ limit, offset, ...query }: TraceQuery): Promise<TraceSummary[]> {
    return listTraces(this.#places, { ...query, owner: this.#owner }, limit, offset);
  }

  async get(traceId: string): Promise<TraceDetail> {
    const found = isTraceId(traceId) ? await findTrace(this.#places, traceId, this.#owner) : [];
    if (found.length === 0) throw doesNotExist("trace", traceId);
    const spans = found.map(spanRecord);
    return { traceId, spans, tree: buildTree(spans), spanCount: spans.length };
  }

  async span(spanId: string): Promise<SpanRecord> {
    const found = isSpanId(spanId) ? await findSpan(this.#places, spanId, this.#owner) : null;
    if (found === null) throw doesNotExist("span", spanId);
    return spanRecord(found);
  }
}

const doesNotExist = (what: string, id: string): ServiceError =>
  notFound(`${what} ${JSON.stringify(id.slice(0, 64))} does not exist`);
