/** The interface of traces, as the API and the tracer use it. */
import type { SpanNode, SpanRecord, TraceSummary } from "../../generated/types.ts";
import { Feed } from "../http/feed.ts";
import type { Principal } from "../identity/principal.ts";
import type { Entity, EntityType, SpanData, TraceData } from "../observability/span.ts";
import type { Recorder } from "./recorder.ts";
import type { Origin, SegmentHead } from "./segment.ts";
import { wholeMilliseconds } from "./times.ts";

// Turns spans and traces into the objects of the API.

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
    ...(ended && { endTime: iso(end), duration: Math.round((span.end - span.start) * 1000) / 1000 }),
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
  {
    origin,
    spanCount,
    spans,
    end,
    userId,
  }: { origin: Origin; spanCount: number; spans: readonly FoundSpan[] | undefined; end: number; userId: string | null },
): TraceSummary {
  return {
    traceId: root.traceId,
    rootSpan: spanRecord({ span: root, origin }),
    spanCount,
    ...(spans !== undefined && { spans: spans.map(spanRecord) }),
    ...(userId !== null && { userId }),
    startTime: iso(root.start),
    ...(end > 0 && { endTime: iso(end) }),
    status: end === 0 ? "running" : root.status.code === 2 ? "error" : "completed",
  };
}

/** The latest end of the spans. */
export const lastEnd = (spans: readonly SpanData[]): number => spans.reduce((last, { end }) => Math.max(last, end), 0);

/** ISO 8601 with microseconds, because many spans start within one millisecond. */
function iso(time: number): string {
  // Rounded to the stored microseconds: a fraction of a large number may be slightly below or above what was written.
  const micros = Math.round(time * 1000);
  const milliseconds = Math.floor(micros / 1000);
  return `${new Date(milliseconds).toISOString().slice(0, -1)}${String(micros - milliseconds * 1000).padStart(3, "0")}Z`;
}

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

// The sink of the tracer: passes everything to the recorder, and single spans to the sockets that follow them.

/** The newest spans are kept for sockets that are behind. */
const MAX_KEPT_SPANS = 1024;

/** A span that has started or ended. */
export class SpanNews {
  readonly type: "span:start" | "span:end";
  /** The span as it was at that time. */
  readonly span: SpanData;
  readonly userId: string | null;
  readonly #origin: Origin;
  #text: Uint8Array | null = null;

  constructor(type: SpanNews["type"], span: SpanData, userId: string | null, origin: Origin) {
    this.type = type;
    this.span = span;
    this.userId = userId;
    this.#origin = origin;
  }

  /** The message for all followers, made once when the first one needs it. */
  get text(): Uint8Array {
    this.#text ??= Buffer.from(this.#json());
    return this.#text;
  }

  #json(): string {
    const { type, span } = this;
    const timestamp = iso(type === "span:end" ? span.end : span.start);
    const data = { type, span: spanRecord({ span, origin: this.#origin }), timestamp };
    return JSON.stringify({ type: "OBSERVABILITY_EVENT", success: true, data });
  }
}

export function createSpanFeed(recorder: Recorder, origin: Origin) {
  const news = new Feed<SpanNews>(MAX_KEPT_SPANS);

  function started({ userId }: TraceData, span: SpanData): void {
    news.publish(new SpanNews("span:start", copyAtStart(span), userId, origin));
  }

  function ended({ userId }: TraceData, span: SpanData): void {
    // A span that has ended does not change any more, so no copy is needed.
    news.publish(new SpanNews("span:end", span, userId, origin));
  }

  return {
    news,
    get live(): boolean {
      return news.size > 0;
    },
    began: recorder.began,
    started,
    ended,
    take: recorder.take,
  };
}

/** A copy of the span at its start, because later attributes may be added to the same object. */
function copyAtStart(span: SpanData): SpanData {
  const { traceId, spanId, parentSpanId, name, kind, entity, start, status, attributes, links } = span;
  const identity = { traceId, spanId, parentSpanId, name, kind, entity, start };
  return { ...identity, end: 0, status, attributes: attributes && { ...attributes }, events: null, links };
}

type TraceStatus = "running" | "completed" | "error";

/** Filters are combined with "and". Times of the start of a trace are milliseconds since 1970, inclusive. */
export interface TraceQuery {
  /** An agent, workflow or other entity that took part in the trace. */
  entityId?: string;
  entityType?: EntityType;
  status?: TraceStatus;
  from?: number;
  to?: number;
  limit: number;
  offset: number;
  /** Whether the spans of each trace are listed too. */
  spans?: boolean;
}

// Which traces, and which segments, match a query.

export interface TraceFilter extends Omit<TraceQuery, "limit" | "offset" | "spans"> {
  /** Only this user's traces; an empty string for those without a user; undefined for all. */
  readonly owner: string | undefined;
}

/** The fields of a trace that the filter uses. */
export interface FilteredTrace {
  readonly status: TraceStatus;
  readonly userId: string | null;
  /** Milliseconds since 1970. */
  readonly start: number;
  entities(): Iterable<Entity>;
}

/** The user whose traces a caller may see, for `TraceFilter.owner`. */
export const visibleOwner = ({ isolated, userId }: Principal): string | undefined =>
  isolated ? (userId ?? "") : undefined;

/** Whether a caller that may see the traces of `owner` may see one of `userId`. */
export const isVisible = (owner: string | undefined, userId: string | null): boolean =>
  owner === undefined || owner === (userId ?? "");

export function matches(filter: TraceFilter, trace: FilteredTrace): boolean {
  const { status, from, to, owner, entityId, entityType } = filter;
  if (status !== undefined && status !== trace.status) return false;
  if (!isVisible(owner, trace.userId)) return false;
  // Clients compare with the times that they were shown.
  const start = wholeMilliseconds(trace.start);
  if (from !== undefined && start < from) return false;
  if (to !== undefined && start > to) return false;
  if (entityId === undefined && entityType === undefined) return true;
  for (const { id, type } of trace.entities()) if (isWanted(filter, type, id)) return true;
  return false;
}

const isWanted = ({ entityId, entityType }: TraceFilter, type: string, id: string): boolean =>
  (entityId === undefined || entityId === id) && (entityType === undefined || entityType === type);

/** `none`: no trace in the segment matches. `all`: every trace that ends in it matches. */
export function matchesHead(filter: TraceFilter, head: SegmentHead, sealed: number): "none" | "some" | "all" {
  const { status, from, to, owner, entityId, entityType } = filter;
  if (head.traces === 0 || status === "running") return "none";
  if (to !== undefined && head.from > to) return "none";
  if (status === "completed" && !head.completed) return "none";
  if (status === "error" && !head.failed) return "none";
  if (owner !== undefined && head.users !== null && !head.users.includes(owner)) return "none";
  const named = entityId !== undefined || entityType !== undefined;
  if (named && head.entities !== null && !head.entities.some((entity) => isWanted(filter, ...splitEntity(entity)))) {
    return "none";
  }
  const open = status === undefined && owner === undefined && !named;
  const within = (from === undefined || head.from >= from) && (to === undefined || sealed <= to);
  return open && within ? "all" : "some";
}

function splitEntity(entity: string): [type: string, id: string] {
  const slash = entity.indexOf("/");
  return [entity.slice(0, slash), entity.slice(slash + 1)];
}
