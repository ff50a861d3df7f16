/** A page of traces. The heads of segments show which ones need not be read, so that a filter with few matches is fast. */
import type { TraceSummary } from "../../generated/types.ts";
import type { Entity, SpanData, TraceData } from "../observability/sink.ts";
import { type FilteredTrace, matches, matchesHead, type TraceFilter } from "./filter.ts";
import type { TraceSources } from "./find.ts";
import type { Line } from "./line.ts";
import { newestSegments, sealedAt } from "./segments.ts";
import { lastEnd, traceSummary } from "./wire.ts";

export async function listTraces(
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
