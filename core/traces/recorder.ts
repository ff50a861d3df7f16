/**
 * Takes the spans of traces that end, and writes them shortly after, many traces in two rows. No request waits for it. While the store
 * is unavailable or too slow, segments wait in memory up to a limit; traces beyond it are dropped and counted.
 */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import type { Entity, SpanData, TraceData } from "../observability/sink.ts";
import type { Store } from "../storage/store.ts";
import type { Origin, Segment } from "./segment.ts";
import { SegmentBuilder } from "./segment-builder.ts";
import { commitOfWrites } from "./segment-rows.ts";

// The traces that have not ended yet: a linked list, so that adding and removing one needs no lookup and no allocation.

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
const MAX_SEGMENT_BYTES = 256 * 1024;
const MAX_COMMIT_BYTES = 2 * 1024 * 1024;
const MAX_WAITING_BYTES = 8 * 1024 * 1024;
/** Shortest time between two log lines about dropped traces. */
const LOG_INTERVAL_MS = 60_000;
/** How many entities of each long trace are remembered until it ends. */
const MAX_ENTITIES_PER_TRACE = 256;

interface RecorderOptions {
  origin: Origin;
  /** Part of the names of segments, unique among the processes that share the store. */
  process: string;
  logger: Logger;
}

export class Recorder {
  readonly open = new OpenTraces();
  readonly #store: Store;
  readonly #logger: Logger;
  readonly #builder: SegmentBuilder;
  /** Sealed segments, the oldest first. */
  readonly #waiting: Segment[] = [];
  #waitingSize = 0;
  /** The entities of long traces whose spans are already in segments. */
  readonly #earlier = new Map<TraceData, Map<string, Entity>>();
  #timer: NodeJS.Timeout | null = null;
  #writing: Promise<void> | null = null;
  #failing = false;
  #closed = false;
  /** Number of dropped traces. */
  #lost = 0;
  #lostLogged = 0;
  #loggedAt = 0;

  constructor(store: Store, { origin, process, logger }: RecorderOptions) {
    this.#store = store;
    this.#logger = logger;
    this.#builder = new SegmentBuilder(origin, process);
  }

  began(trace: TraceData): void {
    this.open.add(trace);
  }

  take(trace: TraceData, spans: readonly SpanData[], last: boolean): void {
    if (last) this.open.remove(trace);
    if (this.#waitingSize + this.#builder.size >= MAX_WAITING_BYTES || this.#closed) {
      this.#drop(trace, last);
      return;
    }
    if (!last || trace.handed > 0) this.#takeLong(trace, spans, last);
    else this.#builder.add(trace, spans, true, 0, undefined);
    if (this.#builder.size >= MAX_SEGMENT_BYTES) this.#seal();
    else if (this.#timer === null) this.#arm(WRITE_DELAY_MS);
  }

  /** Number of traces that were dropped since the service started. */
  get lost(): number {
    return this.#lost;
  }

  /** Whether the last write failed. */
  get failing(): boolean {
    return this.#failing;
  }

  /** Traces and spans that are not written yet. */
  get unwritten(): { traces: number; spans: number } {
    let { traces, spans } = this.#builder;
    for (const { head } of this.#waiting) {
      traces += head.traces;
      spans += head.spans;
    }
    return { traces, spans };
  }

  /** Seals the current segment, and returns all segments that may not be written yet, the newest first. */
  pending(): Segment[] {
    if (this.#builder.size > 0) this.#seal();
    return [...this.#waiting].reverse();
  }

  /** Resolves when the traces that have ended by now are written, or writing has failed. */
  async flush(): Promise<void> {
    if (this.#builder.size > 0) this.#seal();
    await this.#writing;
    if (this.#waiting.length > 0) await this.#flush();
  }

  /** Writes the rest. Open traces are dropped: when a service stops, nothing is running any more. */
  async close(): Promise<void> {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#closed = true;
    await this.flush();
    const unwritten = this.unwritten.traces;
    if (unwritten > 0) this.#logger.error({ traces: unwritten }, "the store takes no traces: the last ones are lost");
  }

  /** Takes spans of a long trace. The root is in the last line, even when it ended before the spans below it. */
  #takeLong(trace: TraceData, spans: readonly SpanData[], last: boolean): void {
    const earlier = this.#earlier.get(trace);
    if (last) {
      this.#earlier.delete(trace);
      const hasRoot = spans[0] === trace.root;
      const all = hasRoot ? spans : [trace.root, ...spans];
      const handed = hasRoot ? trace.handed : trace.handed - 1;
      this.#builder.add(trace, all, true, handed, earlier === undefined ? undefined : [...earlier.values()]);
      return;
    }
    if (spans.length === 0) return;
    const entities = earlier ?? new Map<string, Entity>();
    this.#earlier.set(trace, entities);
    for (const { entity } of spans) {
      if (entities.size < MAX_ENTITIES_PER_TRACE) entities.set(`${entity.type}/${entity.id}`, entity);
    }
    this.#builder.add(trace, spans, false, trace.handed, undefined);
  }

  #seal(): void {
    const segment = this.#builder.seal();
    this.#waiting.push(segment);
    this.#waitingSize += segment.text.length;
    if (!this.#failing) void this.#flush();
  }

  #arm(delay: number): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      if (this.#builder.size > 0) this.#seal();
      if (this.#waiting.length > 0) void this.#flush();
    }, delay);
    this.#timer.unref();
  }

  /** Never rejects. */
  async #flush(): Promise<void> {
    if (this.#writing !== null) return this.#writing;
    this.#writing = this.#write();
    await this.#writing;
    this.#writing = null;
    if (this.#waiting.length > 0 && this.#timer === null) this.#arm(RETRY_DELAY_MS);
  }

  async #write(): Promise<void> {
    try {
      while (this.#waiting.length > 0) {
        let size = 0;
        let count = 0;
        while (count < this.#waiting.length && size < MAX_COMMIT_BYTES) size += this.#waiting[count++]!.text.length;
        const group = this.#waiting.slice(0, count);
        await this.#store.commit(commitOfWrites(group));
        this.#waiting.splice(0, count);
        for (const { text } of group) this.#waitingSize -= text.length;
      }
      if (this.#failing) this.#logger.info({ lost: this.#lost }, "traces are written again");
      this.#failing = false;
    } catch (error) {
      if (!this.#failing) this.#logger.error({ err: error }, `traces cannot be written: ${messageOf(error)}`);
      this.#failing = true;
    }
  }

  #drop(trace: TraceData, last: boolean): void {
    this.#earlier.delete(trace);
    if (!last) return;
    this.#lost++;
    const now = Date.now();
    if (now - this.#loggedAt < LOG_INTERVAL_MS) return;
    this.#logger.warn(
      { traces: this.#lost - this.#lostLogged },
      "traces are not kept: the store does not take them as fast",
    );
    this.#loggedAt = now;
    this.#lostLogged = this.#lost;
  }
}
