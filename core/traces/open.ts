/** Puts together the traces of a service: recorder, lists, lookups and retention over one store. */
import { randomBytes } from "node:crypto";
import type { Logger } from "pino";
import type { ObservabilityStatus, SpanRecord, TraceDetail, TraceSummary } from "../../generated/types.ts";
import type { Feed } from "../http/feed.ts";
import type { Principal } from "../identity/principal.ts";
import { messageOf, notFound, type ServiceError } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { VERSION } from "../lib/version.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { Meters } from "../observability/metrics/meters.ts";
import type { Attributes, Entity, SpanData, SpanSink, TraceData } from "../observability/span.ts";
import {
  foreignRows,
  SEGMENTS,
  secondRows,
  segmentFromForeignKey,
  segmentFromSecondKey,
  segmentsFrom,
  TRACE_COUNTERS,
} from "../storage/keys.ts";
import { excessBytes } from "../storage/memory-shares.ts";
import { allRows, pagesInBackground } from "../storage/ranges.ts";
import { isVolatile, type Store, unlessConflict } from "../storage/store.ts";
import { createRecorder, type Recorder } from "./recorder.ts";
import { commitOfRemovals, type Line, type Origin, parseHead, type Segment } from "./segment.ts";
import { newestSegments, readSegment, SegmentReader, sealedAt } from "./segments.ts";
import { isSpanId, isTraceId, NEARBY_MS, timeOfSpan, timeOfTrace, wholeSeconds } from "./times.ts";
import {
  buildTree,
  createSpanFeed,
  type FilteredTrace,
  type FoundSpan,
  isVisible,
  lastEnd,
  matches,
  matchesHead,
  type SpanNews,
  spanRecord,
  type TraceFilter,
  type TraceQuery,
  traceSummary,
  visibleOwner,
} from "./traces.ts";

// The traces that one principal may see.

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

  /** Skips known spans: the root of a long trace may have been recorded twice. @returns those that it has taken */
  add(spans: readonly SpanData[], origin: Origin): FoundSpan[] {
    const added: FoundSpan[] = [];
    for (const span of spans) {
      if (this.full) break;
      if (this.#byId.has(span.spanId)) continue;
      const found = { span, origin };
      added.push(found);
      this.#byId.set(span.spanId, found);
      this.#text += SPAN_CHARACTERS + attributesLength(span.attributes);
    }
    return added;
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
  { limit, offset, spans: wanted }: Pick<TraceQuery, "limit" | "offset" | "spans">,
): Promise<TraceSummary[]> {
  const page: TraceSummary[] = [];
  const shown = new CollectedSpans();
  const listed = (spans: readonly SpanData[], from: Origin) =>
    wanted ? shown.add(spans, from).sort(bySpanStart) : undefined;
  let skip = offset;
  // Pending and open traces are read at the same time, so that a trace that ends is in exactly one of them.
  const pending = recorder.pending();
  for (const trace of recorder.open) {
    if (!matches(filter, openTraceFacts(trace)) || skip-- > 0) continue;
    const { root, userId, handed, spans } = trace;
    const facts = { origin, spanCount: handed + spans.length, spans: listed(spans, origin), end: 0, userId };
    page.push(traceSummary(root, facts));
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
      const spanCount = handed + spans.length;
      const facts = { origin, spanCount, spans: listed(spans, origin), end: lastEnd(spans), userId };
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

export interface Traces {
  /** Receives what the tracer records. */
  readonly sink: SpanSink;
  /** Every span when it starts and when it ends. Costs nothing while there are no followers. */
  readonly news: Feed<SpanNews>;
  for(principal: Principal): TraceAccess;
  status(): Promise<Pick<ObservabilityStatus, "storage" | "traceCount" | "spanCount" | "message">>;
  start(): void;
  /** Writes everything that is not written yet. */
  close(): Promise<void>;
}

/** The traces for one principal. A trace of another user is treated like an unknown one: ServiceError `not_found`. */
class TraceAccess {
  readonly #places: TraceSources;
  readonly #owner: string | undefined;

  constructor(places: TraceSources, principal: Principal) {
    this.#places = places;
    this.#owner = visibleOwner(principal);
  }

  /** Running traces, the newest first, then ended ones, the last ended first. */
  list(query: TraceQuery): Promise<TraceSummary[]> {
    return listTraces(this.#places, { ...query, owner: this.#owner }, query);
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

const FIRST_ROUND_DELAY_MS = 5_000;
const ROUND_INTERVAL_MS = 10_000;
const SEGMENTS_PER_COMMIT = 32;

interface TraceRetentionOptions {
  /** How many milliseconds traces are kept. */
  readonly retention: number;
  /** How many characters of traces are kept. */
  readonly size: number;
  /** By how many bytes they take more of the heap than they may, in a store that is there. */
  readonly excess?: () => number;
  readonly logger: Logger;
  /** Milliseconds between two rounds; default ten seconds. */
  readonly round?: number;
}

/** Removes traces that are too old or too many: the oldest segments first, a few at a time. */
export function createTraceRetention(store: Store, options: TraceRetentionOptions) {
  const rounds = new Interval(
    options.round ?? ROUND_INTERVAL_MS,
    () => removeOld(Date.now()),
    (error) => options.logger.warn({ err: error }, `old traces cannot be removed: ${messageOf(error)}`),
  );

  /** Removes what is older than the retention at `now` (milliseconds since 1970), and the oldest traces beyond the size limit. */
  async function removeOld(now: number): Promise<void> {
    const { retention, size } = options;
    const oldest = Math.max(0, Math.floor(now - retention));
    const range = { prefix: SEGMENTS, ...((await excessOf(size)) <= 0 && { before: segmentsFrom(oldest) }) };
    for await (const rows of pagesInBackground(store, range, SEGMENTS_PER_COMMIT, rounds.signal)) {
      // Read again for every page, because other processes remove traces too.
      const excess = await excessOf(size);
      let freed = 0;
      const group = rows.map(parseHead).filter(({ name, head }) => {
        const isRemoved = freed < excess || sealedAt(name) < now - retention;
        if (isRemoved) freed += head.size;
        return isRemoved;
      });
      if (group.length === 0) return;
      // A conflict means that another process is removing traces.
      if (!(await unlessConflict(store.commit(commitOfRemovals(group))))) return;
    }
  }

  async function excessOf(size: number): Promise<number> {
    const row = await store.get(TRACE_COUNTERS.size);
    return Math.max(Number(row?.value ?? 0) - size, options.excess?.() ?? 0);
  }

  return {
    start: () => rounds.start(Math.min(FIRST_ROUND_DELAY_MS, options.round ?? FIRST_ROUND_DELAY_MS)),
    close: () => rounds.stop(),
    removeOld,
  };
}

/** In memory the limit is checked more often than on disk. */
const RETENTION_INTERVAL_IN_MEMORY_MS = 1_000;

/** @param meters gets a counter of the traces that were dropped */
export function openTraces(
  manifest: Manifest,
  store: Store,
  logger: Logger,
  meters: Pick<Meters, "add"> | null = null,
): Traces {
  // Getters, because a reload may change the values.
  const origin: Origin = {
    get service() {
      return manifest.name;
    },
    get version() {
      return manifest.version;
    },
    scope: VERSION,
  };
  const recorder = createRecorder(store, { origin, process: randomBytes(5).toString("hex"), logger });
  meters?.add({
    name: "traces_dropped_total",
    help: "Traces that were not kept: the store did not take them as fast.",
    type: "counter",
    read: () => recorder.lost,
  });
  const inMemory = isVolatile(store);
  const retention = createTraceRetention(store, {
    get retention() {
      return manifest.observability.retention;
    },
    get size() {
      return manifest.observability.size;
    },
    logger,
    ...(inMemory && { round: RETENTION_INTERVAL_IN_MEMORY_MS, excess: () => excessBytes(store, "traces") }),
  });
  const places = { store, recorder, origin };
  const feed = createSpanFeed(recorder, origin);
  return {
    sink: feed,
    news: feed.news,
    for: (principal) => new TraceAccess(places, principal),
    async status() {
      await recorder.flush();
      const [traces, spans] = await store.getMany([TRACE_COUNTERS.traces, TRACE_COUNTERS.spans]);
      const { unwritten, lost, failing } = recorder;
      return {
        storage: store.kind,
        traceCount: Number(traces?.value ?? 0) + unwritten.traces,
        spanCount: Number(spans?.value ?? 0) + unwritten.spans,
        message: statusMessage(manifest.observability.sample, lost, failing),
      };
    },
    start: () => retention.start(),
    async close() {
      await recorder.close();
      await retention.close();
    },
  };
}

function statusMessage(sample: number, lost: number, failing: boolean): string {
  const kept =
    sample === 0 ? "no traces are recorded: observability.sample is 0" : `${sampledShare(sample)} are recorded`;
  const dropped = lost === 0 ? "" : `; ${lost} were not kept, for the store did not take them as fast`;
  return `${kept}${dropped}${failing ? "; the store does not take traces at the moment" : ""}`;
}

const sampledShare = (sample: number): string =>
  sample === 1 ? "all runs" : `${Number((sample * 100).toFixed(4))} % of runs`;
