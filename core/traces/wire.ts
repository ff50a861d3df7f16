/** Turns spans and traces into the objects of the API. */
import type { SpanNode, SpanRecord, TraceSummary } from "../../generated/types.ts";
import type { SpanData } from "../observability/sink.ts";
import type { Origin } from "./segment.ts";

const SCOPE_NAME = "penstock";

/** A span, and the service that wrote it: several versions of a service may have written parts of one trace. */
export interface FoundSpan {
  readonly span: SpanData;
  readonly origin: Origin;
}

export function spanRecord({ span, origin }: FoundSpan): SpanRecord {
  const { traceId, spanId, parentSpanId, name, kind, start, end, status, entity } = span;
  const ended = end > 0;
  return {
    traceId,
    spanId,
    parentSpanId,
    name,
    kind,
    startTime: iso(start),
    ...(ended && { endTime: iso(end), duration: durationOf(span) }),
    attributes: {
      "entity.id": entity.id,
      "entity.type": entity.type,
      "entity.name": entity.name,
      ...span.attributes,
    },
    status: { code: status.code, ...(status.message !== undefined && { message: status.message }) },
    events: (span.events ?? []).map((event) => ({
      name: event.name,
      timestamp: iso(event.time),
      attributes: event.attributes ?? {},
    })),
    links: (span.links ?? []).map((link) => ({ traceId: link.traceId, spanId: link.spanId })),
    resource: { "service.name": origin.service, "service.version": origin.version },
    instrumentationScope: { name: SCOPE_NAME, version: origin.scope },
  };
}

/** @param end milliseconds since 1970; 0 while it runs */
export function traceSummary(
  root: SpanData,
  { origin, spanCount, end, userId }: { origin: Origin; spanCount: number; end: number; userId: string | null },
): TraceSummary {
  return {
    traceId: root.traceId,
    rootSpan: spanRecord({ span: root, origin }),
    spanCount,
    ...(userId !== null && { userId }),
    startTime: iso(root.start),
    ...(end > 0 && { endTime: iso(end) }),
    status: end === 0 ? "running" : root.status.code === 2 ? "error" : "completed",
  };
}

/** The latest end of the spans. */
export const lastEnd = (spans: readonly SpanData[]): number => spans.reduce((last, { end }) => Math.max(last, end), 0);

/** ISO 8601 with microseconds, because many spans start within one millisecond. */
export function iso(time: number): string {
  // Rounded to the stored microseconds: a fraction of a large number may be slightly below or above what was written.
  const micros = Math.round(time * 1000);
  const milliseconds = Math.floor(micros / 1000);
  return `${new Date(milliseconds).toISOString().slice(0, -1)}${String(micros - milliseconds * 1000).padStart(3, "0")}Z`;
}

/** Milliseconds, rounded to microseconds. */
const durationOf = ({ start, end }: SpanData): number => Math.round((end - start) * 1000) / 1000;

/** Puts every span below its parent, sorted by start. A span without its parent in the list is at the top. */
export function buildTree(spans: readonly SpanRecord[]): SpanNode[] {
  const nodes = new Map<string, SpanNode>();
  for (const span of spans) nodes.set(span.spanId, { ...span, depth: 0, children: [] });
  const roots: SpanNode[] = [];
  for (const node of nodes.values()) {
    const parent = node.parentSpanId === null ? undefined : nodes.get(node.parentSpanId);
    if (parent === undefined || parent === node) roots.push(node);
    else parent.children.push(node);
  }
  // Depths are set level by level, because a child may come before its parent in the list.
  for (let level = roots, depth = 0; level.length > 0; depth++) {
    for (const node of level) node.depth = depth;
    level = level.flatMap(({ children }) => children);
  }
  return roots;
}
