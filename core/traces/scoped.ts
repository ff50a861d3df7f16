/** The traces that one principal may see. */
import type { SpanRecord, TraceDetail, TraceSummary } from "../../generated/types.ts";
import type { Principal } from "../identity/principal.ts";
import { notFound, type ServiceError } from "../lib/errors.ts";
import { visibleOwner } from "./filter.ts";
import { findSpan, findTrace, type TraceSources } from "./find.ts";
import { listTraces } from "./list.ts";
import { isSpanId, isTraceId } from "./times.ts";
import type { TraceAccess, TraceQuery } from "./traces.ts";
import { buildTree, spanRecord } from "./wire.ts";

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
