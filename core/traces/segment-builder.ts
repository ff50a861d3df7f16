/** Collects lines into a segment. It keeps bytes instead of strings, so that waiting lines cost no garbage collection. */
import type { SpanData, TraceData } from "../observability/sink.ts";
import { encodeNumber } from "../storage/encoding.ts";
import { type EarlierEntities, writeLine } from "./line.ts";
import { type Origin, SEPARATOR, type Segment, type SegmentHead } from "./segment.ts";
import { Templates, templateText } from "./templates.ts";
import { latin1Json } from "./text.ts";
import { NEARBY_MS, wholeSeconds } from "./times.ts";

/** Size of the buffer. A large trace enlarges it for one segment. */
const BUFFER_BYTES = 320 * 1024;
/** More entities or users than these are not listed in a head. */
const MAX_LISTED_NAMES = 64;
/** A segment that was sealed late is indexed by at most this many seconds. */
const MAX_LATE_SECONDS = 120;

/** @param processName part of the names of all segments of this process */
export function createSegmentBuilder(origin: Origin, processName: string) {
  const templates = new Templates();
  let bytes = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  let size = 0;
  let base = 0;
  let sealed = 0;
  let traceCount = 0;
  let spanCount = 0;
  let from = Number.POSITIVE_INFINITY;
  let completed = false;
  let failed = false;
  const users = new Set<string>();
  let lastUser: string | null | undefined;
  const earlierNames = new Set<string>();
  const foreignIds = new Set<string>();
  const seconds = new Set<number>();
  /** The earliest start of a trace that has no second in `#seconds`. */
  let earliestNear = Number.POSITIVE_INFINITY;
  /** The latest end of a span. */
  let latest = 0;

  /**
   * @param spans at least one; with `last` the first one is the root
   * @param handed number of spans of the trace in earlier lines
   */
  function add(
    trace: TraceData,
    spans: readonly SpanData[],
    last: boolean,
    handed: number,
    earlier: EarlierEntities,
  ): void {
    if (size === 0) base = Math.floor(spans[0]!.start);
    const line = writeLine({ trace, spans, last, handed, earlier }, base, templates);
    append(SEPARATOR + line);
    spanCount += spans.length;
    if (last) count(trace, earlier);
    place(trace, spans);
  }

  /** The value of `Segment.text` if it were sealed now. */
  function wholeText(): string {
    const header = `${latin1Json({ ...origin, base }).slice(0, -1)},"templates":[`;
    const body = bytes.toString("latin1", 0, size);
    return `[${header}${templates.all.map(templateText).join(",")}]}${body}]`;
  }

  /** Returns the finished segment, and starts another one. */
  function seal(): Segment {
    // After everything in the segment, and after the previous segment, even when the system clock is set back.
    sealed = Math.max(sealed + 1, Date.now(), Math.ceil(latest));
    const name = `${encodeNumber(sealed)}/${processName}`;
    const text = wholeText();
    const segment = { name, head: head(text.length), text };
    clear();
    return segment;
  }

  function append(text: string): void {
    const end = size + text.length;
    if (end > bytes.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(end, bytes.length * 2));
      bytes.copy(larger, 0, 0, size);
      bytes = larger;
    }
    bytes.write(text, size, "latin1");
    size = end;
  }

  function count({ root, userId }: TraceData, earlier: EarlierEntities): void {
    traceCount++;
    if (root.status.code === 2) failed = true;
    else completed = true;
    if (userId !== lastUser) {
      users.add(userId ?? "");
      lastUser = userId;
    }
    if (earlier !== undefined) for (const { type, id } of earlier) earlierNames.add(`${type}/${id}`);
  }

  /** Indexes the trace. Long traces are found by the seconds in which their spans started. */
  function place(trace: TraceData, spans: readonly SpanData[]): void {
    const { root, foreign } = trace;
    if (foreign) foreignIds.add(trace.traceId);
    if (root.start < from) from = root.start;
    let end = 0;
    for (let index = 0; index < spans.length; index++) end = Math.max(end, spans[index]!.end);
    if (end > latest) latest = end;
    if (end - root.start < NEARBY_MS / 2) {
      if (root.start < earliestNear) earliestNear = root.start;
      return;
    }
    seconds.add(wholeSeconds(root.start));
    for (const span of spans) seconds.add(wholeSeconds(span.start));
  }

  function head(size: number): SegmentHead {
    const entities = new Set(earlierNames);
    for (const { entity } of templates.all) entities.add(`${entity.type}/${entity.id}`);
    // The segment was sealed late, because the process was busy: short traces need their seconds too.
    if (sealed - earliestNear > NEARBY_MS) {
      const first = wholeSeconds(earliestNear);
      const last = Math.min(wholeSeconds(sealed), first + MAX_LATE_SECONDS);
      for (let second = first; second <= last; second++) seconds.add(second);
    }
    return {
      traces: traceCount,
      spans: spanCount,
      size,
      from: Math.floor(from),
      entities: namesIfFew(entities),
      users: namesIfFew(users),
      completed,
      failed,
      seconds: [...seconds],
      foreign: [...foreignIds],
    };
  }

  function clear(): void {
    if (bytes.length > BUFFER_BYTES) bytes = Buffer.allocUnsafeSlow(BUFFER_BYTES);
    size = 0;
    traceCount = 0;
    spanCount = 0;
    completed = false;
    failed = false;
    lastUser = undefined;
    from = Number.POSITIVE_INFINITY;
    earliestNear = Number.POSITIVE_INFINITY;
    latest = 0;
    templates.clear();
    users.clear();
    earlierNames.clear();
    foreignIds.clear();
    seconds.clear();
  }

  return {
    /** Size in bytes, without the header. */
    get size(): number {
      return size;
    },
    /** Number of traces that end in it. */
    get traces(): number {
      return traceCount;
    },
    get spans(): number {
      return spanCount;
    },
    add,
    text: wholeText,
    seal,
  };
}

const namesIfFew = (names: ReadonlySet<string>): string[] | null => (names.size > MAX_LISTED_NAMES ? null : [...names]);
