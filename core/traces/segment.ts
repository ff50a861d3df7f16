/**
 * A segment: the spans of many traces, a line of JSON for each trace, which are written and removed together. In the store it is deflated,
 * and in base 64, or as it is where there was no memory to deflate it.
 */
import { promisify } from "node:util";
import { deflateRaw } from "node:zlib";
import type { Entity, SpanData, TraceData } from "../observability/span.ts";
import {
  encodeNumber,
  foreignKey,
  secondKey,
  segmentDataKey,
  segmentFromKey,
  segmentKey,
  TRACE_COUNTERS,
} from "../storage/keys.ts";
import type { Commit, Row } from "../storage/store.ts";
import { NEARBY_MS, wholeSeconds } from "./times.ts";

/** The service that wrote a trace. */
export interface Origin {
  readonly service: string;
  readonly version: string;
  /** The version of Penstock. */
  readonly scope: string;
}

/** All or some spans of one trace. */
export interface Line {
  readonly traceId: string;
  /** Whether the trace has ended with these spans. The first one is its root then. */
  readonly last: boolean;
  /** Number of its spans in earlier lines. */
  readonly handed: number;
  readonly userId: string | null;
  /** In the last line: the entities of spans in earlier ones. */
  readonly entities: readonly Entity[];
  readonly origin: Origin;
  readonly spans: readonly SpanData[];
}

/** A summary that lets searches skip segments in which nothing can match. */
export interface SegmentHead {
  /** Number of traces that end in it, of spans, and of characters in the store (until they are known, of its lines). */
  readonly traces: number;
  readonly spans: number;
  size: number;
  /** The earliest start of a trace that has spans in it: whole milliseconds since 1970. */
  readonly from: number;
  /** `type/id` of all entities of the traces that end in it; null when there are too many to list. */
  readonly entities: readonly string[] | null;
  /** The users of the traces; null when there are too many to list. An empty string stands for no user. */
  readonly users: readonly string[] | null;
  /** Whether there are traces that succeeded, and traces that failed. */
  readonly completed: boolean;
  readonly failed: boolean;
  /** Seconds in which spans started long before the segment was sealed. */
  readonly seconds: readonly number[];
  /** Ids of traces that came from callers. */
  readonly foreign: readonly string[];
}

/** A segment that is about to be written. */
export interface Segment {
  /** `#sealedAt/PROCESS`, so that the segments of all processes sort by the time they were sealed. */
  readonly name: string;
  readonly head: SegmentHead;
  readonly text: Promise<string>;
}

/** More entities or users than these are not listed in a head. */
const MAX_LISTED_NAMES = 64;
/** A segment that was sealed late is indexed by at most this many seconds. */
const MAX_LATE_SECONDS = 120;
/** Fast: a busy service has many traces, and most of what they say is said by the one before. */
const DEFLATE = { level: 1 };

export const SEPARATOR = "\n";
export const lineText = (line: Line): string => SEPARATOR + JSON.stringify(line);

async function pack(lines: string, head: SegmentHead): Promise<string> {
  // Never rejects: that would hold up all segments behind it.
  const text = await promisify(deflateRaw)(lines, DEFLATE).then(
    (packed) => packed.toString("base64"),
    () => lines,
  );
  head.size = text.length;
  return text;
}

/** Collects lines into segments. @param processName part of the names of all segments of this process */
export function createSegmentBuilder(origin: Origin, processName: string) {
  let lines = "";
  let sealed = 0;
  let traces = 0;
  let spanCount = 0;
  let from = Number.POSITIVE_INFINITY;
  let completed = false;
  let failed = false;
  const users = new Set<string>();
  const entities = new Set<string>();
  let lastEntity: Entity | undefined;
  const foreign = new Set<string>();
  const seconds = new Set<number>();
  /** The earliest start of a trace that has no second in `seconds`. */
  let earliestNear = Number.POSITIVE_INFINITY;
  /** The latest end of a span. */
  let latest = 0;

  /**
   * @param spans at least one; with `last` the first one is the root
   * @param handed number of spans of the trace in earlier lines
   * @param earlier the entities of these spans
   */
  function add(
    { traceId, userId, root, foreign: isForeign }: TraceData,
    spans: readonly SpanData[],
    last: boolean,
    handed: number,
    earlier: readonly Entity[],
  ): void {
    lines += lineText({ traceId, last, handed, userId, entities: earlier, origin, spans });
    spanCount += spans.length;
    if (last) {
      traces++;
      if (root.status.code === 2) failed = true;
      else completed = true;
      addUpTo(users, userId ?? "");
      for (const entity of earlier) addEntity(entity);
    }
    if (isForeign) foreign.add(traceId);
    place(root, spans);
  }

  function addEntity(entity: Entity): void {
    if (entity === lastEntity) return;
    lastEntity = entity;
    addUpTo(entities, `${entity.type}/${entity.id}`);
  }

  /** Long traces are found by the seconds in which their spans started. */
  function place(root: SpanData, spans: readonly SpanData[]): void {
    if (root.start < from) from = root.start;
    let end = 0;
    for (const span of spans) {
      addEntity(span.entity);
      if (span.end > end) end = span.end;
    }
    if (end > latest) latest = end;
    if (end - root.start < NEARBY_MS / 2) {
      if (root.start < earliestNear) earliestNear = root.start;
      return;
    }
    seconds.add(wholeSeconds(root.start));
    for (const span of spans) seconds.add(wholeSeconds(span.start));
  }

  /** Returns the finished segment, and starts another one. */
  function seal(): Segment {
    // After everything in the segment, and after the previous segment, even when the system clock is set back.
    sealed = Math.max(sealed + 1, Date.now(), Math.ceil(latest));
    const head = makeHead();
    const segment = { name: `${encodeNumber(sealed)}/${processName}`, head, text: pack(lines, head) };
    clear();
    return segment;
  }

  function makeHead(): SegmentHead {
    // The segment was sealed late, because the process was busy: short traces need their seconds too.
    if (sealed - earliestNear > NEARBY_MS) {
      const first = wholeSeconds(earliestNear);
      const last = Math.min(wholeSeconds(sealed), first + MAX_LATE_SECONDS);
      for (let second = first; second <= last; second++) seconds.add(second);
    }
    return {
      traces,
      spans: spanCount,
      size: lines.length,
      from: Math.floor(from),
      entities: namesIfFew(entities),
      users: namesIfFew(users),
      completed,
      failed,
      seconds: [...seconds],
      foreign: [...foreign],
    };
  }

  function clear(): void {
    lines = "";
    traces = spanCount = latest = 0;
    completed = failed = false;
    from = earliestNear = Number.POSITIVE_INFINITY;
    lastEntity = undefined;
    for (const set of [users, entities, foreign, seconds]) set.clear();
  }

  return {
    /** Number of characters. */
    get size(): number {
      return lines.length;
    },
    /** Number of traces that end in it. */
    get traces(): number {
      return traces;
    },
    get spans(): number {
      return spanCount;
    },
    add,
    seal,
  };
}

function addUpTo(names: Set<string>, name: string): void {
  if (names.size <= MAX_LISTED_NAMES) names.add(name);
}

const namesIfFew = (names: ReadonlySet<string>): string[] | null => (names.size > MAX_LISTED_NAMES ? null : [...names]);

// The rows of segments, which are written in one commit and removed in one.

/** A head that was read from the store, with the revision of its row. */
interface KnownHead {
  readonly name: string;
  readonly head: SegmentHead;
  readonly revision: number;
}

export async function commitOfWrites(segments: readonly Segment[]): Promise<Commit> {
  const put: [string, string][] = [];
  for (const { name, head, text } of segments) {
    put.push([segmentKey(name), JSON.stringify(head)], [segmentDataKey(name), await text]);
    for (const key of placeKeys(name, head)) put.push([key, "1"]);
  }
  return { put, add: counterChanges(segments, 1) };
}

/** The commit that removes segments. Of several processes that remove the same ones, only one succeeds. */
export function commitOfRemovals(segments: readonly KnownHead[]): Commit {
  const gone = segments.flatMap(({ name, head }) => [segmentKey(name), segmentDataKey(name), ...placeKeys(name, head)]);
  const expect = segments.map(({ name, revision }): [string, number] => [segmentKey(name), revision]);
  return { delete: gone, add: counterChanges(segments, -1), expect };
}

const EMPTY_HEAD: SegmentHead = {
  traces: 0,
  spans: 0,
  size: 0,
  from: 0,
  entities: [],
  users: [],
  completed: false,
  failed: false,
  seconds: [],
  foreign: [],
};

/** Parses the head of a segment. An unreadable row becomes an empty head, which lists skip and retention removes. */
export function parseHead({ key, value, revision }: Row): KnownHead {
  const name = segmentFromKey(key);
  try {
    return { name, head: { ...EMPTY_HEAD, ...(JSON.parse(value) as object) }, revision };
  } catch {
    return { name, head: EMPTY_HEAD, revision };
  }
}

const placeKeys = (name: string, { seconds, foreign }: SegmentHead): string[] => [
  ...seconds.map((second) => secondKey(second, name)),
  ...foreign.map((traceId) => foreignKey(traceId, name)),
];

function counterChanges(segments: readonly { head: SegmentHead }[], sign: 1 | -1): [string, number][] {
  const sum = { traces: 0, spans: 0, size: 0 };
  for (const { head } of segments) {
    sum.traces += head.traces;
    sum.spans += head.spans;
    sum.size += head.size;
  }
  return [
    [TRACE_COUNTERS.traces, sign * sum.traces],
    [TRACE_COUNTERS.spans, sign * sum.spans],
    [TRACE_COUNTERS.size, sign * sum.size],
  ];
}
