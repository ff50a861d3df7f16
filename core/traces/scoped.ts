/** The traces that one principal may see. */
import type { SpanRecord, TraceDetail, TraceSummary } from "../../generated/types.ts";
import type { Principal } from "../identity/principal.ts";
import { notFound, type ServiceError } from "../lib/errors.ts";
import type { SpanData, TraceData } from "../observability/sink.ts";
import type { Entity } from "../observability/span.ts";
import { type FilteredTrace, matches, matchesHead, type TraceFilter, visibleOwner } from "./filter.ts";
import { findSpan, findTrace, type TraceSources } from "./find.ts";
import type { Line } from "./line.ts";
import { newestSegments, sealedAt } from "./segments.ts";
import { isSpanId, isTraceId } from "./times.ts";
import type { TraceAccess, TraceQuery } from "./traces.ts";
import { buildTree, lastEnd, spanRecord, traceSummary } from "./wire.ts";

// A page of traces. The heads of segments show which ones need not be read, so that a filter with few matches is fast.

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
      const { userId, handed, spans } = line;
      const facts = { origin: reader.origin, spanCount: handed + spans.length, end: lastEnd(spans), userId };
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
