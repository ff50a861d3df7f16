/** Which traces, and which segments, match a query. */
import type { Principal } from "../identity/principal.ts";
import type { Entity } from "../observability/span.ts";
import type { SegmentHead } from "./segment.ts";
import { wholeMilliseconds } from "./times.ts";
import type { TraceQuery, TraceStatus } from "./traces.ts";

export interface TraceFilter extends Omit<TraceQuery, "limit" | "offset"> {
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
