/**
 * Takes the spans of traces that end, and writes them shortly after, many traces in two rows. No request waits for it. While the store
 * is unavailable or too slow, segments wait in memory up to a limit; traces beyond it are dropped and counted.
 */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import type { Entity, SpanData, TraceData } from "../observability/span.ts";
import type { Store } from "../storage/store.ts";
import { commitOfWrites, createSegmentBuilder, type Origin, type Segment } from "./segment.ts";

/** The traces that have not ended yet: a linked list, so that adding and removing one needs no lookup and no allocation. */
class OpenTraces {
  #newest: TraceData | null = null;

  add(trace: TraceData): void {
    trace.older = this.#newest;
    if (this.#newest !== null) this.#newest.newer = trace;
    this.#newest = trace;
  }

  remove(trace: TraceData): void {
    const { newer, older } = trace;
    if (newer !== null) newer.older = older;
    else if (this.#newest === trace) this.#newest = older;
    if (older !== null) older.newer = newer;
    trace.newer = null;
    trace.older = null;
  }

  /** Yields the newest first. The list must not change during the iteration. */
  *[Symbol.iterator](): Generator<TraceData> {
    for (let trace = this.#newest; trace !== null; trace = trace.older) yield trace;
  }
}

/** Delay from the end of a trace until it is written, and from a failed write until the next try. */
const WRITE_DELAY_MS = 250;
const RETRY_DELAY_MS = 1_000;
/** In characters: of the lines of one segment, of the segments of a commit, of what waits. */
const MAX_SEGMENT_SIZE = 512 * 1024;
const MAX_COMMIT_SIZE = 2 * 1024 * 1024;
const MAX_WAITING_SIZE = 8 * 1024 * 1024;
/** Shortest time between two log lines about dropped traces. */
const LOG_INTERVAL_MS = 60_000;
/** How many entities of each long trace are remembered until it ends. */
const MAX_ENTITIES_PER_TRACE = 256;

const NONE: readonly Entity[] = [];

interface RecorderOptions {
  origin: Origin;
  /** Part of the names of segments, unique among the processes that share the store. */
  process: string;
  logger: Logger;
}

export type Recorder = ReturnType<typeof createRecorder>;

export function createRecorder(store: Store, { origin, process, logger }: RecorderOptions) {
  const open = new OpenTraces();
  /** Sealed segments, the oldest first. */
  const waiting: Segment[] = [];
  /** The entities of long traces whose spans are already in segments. */
  const entitiesOf = new Map<TraceData, Map<string, Entity>>();
  let timer: NodeJS.Timeout | null = null;
  let writing: Promise<void> | null = null;
  let failing = false;
  let closed = false;
  /** Number of dropped traces. */
  let lost = 0;
  let lostLogged = 0;
  let loggedAt = 0;
  const builder = createSegmentBuilder(origin, process);

  function take(trace: TraceData, spans: readonly SpanData[], last: boolean): void {
    if (last) open.remove(trace);
    if (closed || waiting.reduce((size, { head }) => size + head.size, builder.size) >= MAX_WAITING_SIZE) {
      drop(trace, last);
      return;
    }
    if (!last || trace.handed > 0) takeLong(trace, spans, last);
    else builder.add(trace, spans, true, 0, NONE);
    if (builder.size >= MAX_SEGMENT_SIZE) seal();
    else if (timer === null) arm(WRITE_DELAY_MS);
  }

  /** Seals the current segment, and returns all segments that may not be written yet, the newest first. */
  function pending(): Segment[] {
    if (builder.size > 0) seal();
    return [...waiting].reverse();
  }

  /** Resolves when the traces that have ended by now are written, or writing has failed. */
  async function flush(): Promise<void> {
    if (builder.size > 0) seal();
    await writing;
    if (waiting.length > 0) await writeAll();
  }

  /** Writes the rest. Open traces are dropped: when a service stops, nothing is running any more. */
  async function close(): Promise<void> {
    if (timer !== null) clearTimeout(timer);
    closed = true;
    await flush();
    const { traces } = unwritten();
    if (traces > 0) logger.error({ traces }, "the store takes no traces: the last ones are lost");
  }

  /** Takes spans of a long trace. The root is in the last line, even when it ended before the spans below it. */
  function takeLong(trace: TraceData, spans: readonly SpanData[], last: boolean): void {
    const earlier = entitiesOf.get(trace);
    if (last) {
      entitiesOf.delete(trace);
      const hasRoot = spans[0] === trace.root;
      const all = hasRoot ? spans : [trace.root, ...spans];
      const handed = hasRoot ? trace.handed : trace.handed - 1;
      builder.add(trace, all, true, handed, earlier === undefined ? NONE : [...earlier.values()]);
      return;
    }
    if (spans.length === 0) return;
    const entities = earlier ?? new Map<string, Entity>();
    entitiesOf.set(trace, entities);
    for (const { entity } of spans) {
      if (entities.size < MAX_ENTITIES_PER_TRACE) entities.set(`${entity.type}/${entity.id}`, entity);
    }
    builder.add(trace, spans, false, trace.handed, NONE);
  }

  function seal(): void {
    waiting.push(builder.seal());
    if (!failing) void writeAll();
  }

  function arm(delay: number): void {
    if (closed) return;
    timer = setTimeout(() => {
      timer = null;
      if (builder.size > 0) seal();
      if (waiting.length > 0) void writeAll();
    }, delay);
    timer.unref();
  }

  /** Never rejects. */
  async function writeAll(): Promise<void> {
    if (writing !== null) return writing;
    writing = write();
    await writing;
    writing = null;
    if (waiting.length > 0 && timer === null) arm(RETRY_DELAY_MS);
  }

  async function write(): Promise<void> {
    try {
      while (waiting.length > 0) {
        const group: Segment[] = [];
        for (let size = 0; size < MAX_COMMIT_SIZE && group.length < waiting.length; ) {
          const segment = waiting[group.length]!;
          await segment.text;
          size += segment.head.size;
          group.push(segment);
        }
        await store.commit(await commitOfWrites(group));
        waiting.splice(0, group.length);
      }
      if (failing) logger.info({ lost }, "traces are written again");
      failing = false;
    } catch (error) {
      if (!failing) logger.error({ err: error }, `traces cannot be written: ${messageOf(error)}`);
      failing = true;
    }
  }

  function drop(trace: TraceData, last: boolean): void {
    entitiesOf.delete(trace);
    if (!last) return;
    lost++;
    const now = Date.now();
    if (now - loggedAt < LOG_INTERVAL_MS) return;
    logger.warn({ traces: lost - lostLogged }, "traces are not kept: the store does not take them as fast");
    loggedAt = now;
    lostLogged = lost;
  }

  /** Traces and spans that are not written yet. */
  function unwritten(): { traces: number; spans: number } {
    let { traces, spans } = builder;
    for (const { head } of waiting) {
      traces += head.traces;
      spans += head.spans;
    }
    return { traces, spans };
  }

  return {
    open,
    /** Number of traces that were dropped since the service started. */
    get lost(): number {
      return lost;
    },
    /** Whether the last write failed. */
    get failing(): boolean {
      return failing;
    },
    get unwritten() {
      return unwritten();
    },
    began: (trace: TraceData): void => open.add(trace),
    take,
    pending,
    flush,
    close,
  };
}
