/**
 * Takes the spans of all that ends, and writes them a moment later, many traces in two rows. Nobody waits for it: while the store
 * is away or too slow, as much as `ROOM` says waits in memory, and what comes beyond it is not kept, but counted.
 */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import type { Entity, SpanData, TraceData } from "../observability/sink.ts";
import type { Store } from "../storage/store.ts";
import { OpenTraces } from "./open-traces.ts";
import type { Origin, Segment } from "./segment.ts";
import { SegmentBuilder } from "./segment-builder.ts";
import { commitOfWrites } from "./segment-rows.ts";

/** Milliseconds until what has ended is written, and until what could not be written is tried again. */
const DELAY = 250;
const AGAIN = 1_000;
/** Bytes of a segment, of one commit, and of all that may wait. */
const SEGMENT = 256 * 1024;
const COMMIT = 2 * 1024 * 1024;
const ROOM = 8 * 1024 * 1024;
/** Milliseconds between two lines of the log that say how many were not kept. */
const SAID = 60_000;
/** Entities of long traces that are remembered until they end. */
const ENTITIES = 256;

interface RecorderOptions {
  origin: Origin;
  /** Part of the names of segments: no other process over the same store has it. */
  process: string;
  logger: Logger;
}

export class Recorder {
  readonly open = new OpenTraces();
  readonly #store: Store;
  readonly #logger: Logger;
  readonly #builder: SegmentBuilder;
  /** Sealed, the oldest first. */
  readonly #waiting: Segment[] = [];
  #waitingSize = 0;
  /** Whose spans of a long trace went before. */
  readonly #earlier = new Map<TraceData, Map<string, Entity>>();
  #timer: NodeJS.Timeout | null = null;
  #writing: Promise<void> | null = null;
  #failing = false;
  #closed = false;
  /** Traces that were not kept. */
  #lost = 0;
  #lostSaid = 0;
  #saidAt = 0;

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
    if (this.#waitingSize + this.#builder.size >= ROOM || this.#closed) {
      this.#lose(trace, last);
      return;
    }
    if (!last || trace.handed > 0) this.#takeLong(trace, spans, last);
    else this.#builder.add(trace, spans, true, 0, undefined);
    if (this.#builder.size >= SEGMENT) this.#seal();
    else if (this.#timer === null) this.#arm(DELAY);
  }

  /** Traces that were not kept since the service began. */
  get lost(): number {
    return this.#lost;
  }

  /** Whether the store took nothing when it was asked last. */
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

  /** Seals what there is, so that it has a name, and gives all that is not known to be written: the newest first. */
  pending(): Segment[] {
    if (this.#builder.size > 0) this.#seal();
    return [...this.#waiting].reverse();
  }

  /** Resolves when what has ended by now is written, or cannot be. */
  async flush(): Promise<void> {
    if (this.#builder.size > 0) this.#seal();
    await this.#writing;
    if (this.#waiting.length > 0) await this.#flush();
  }

  /** Writes what there is. Open traces are lost: nothing that goes on is left when a service stops. */
  async close(): Promise<void> {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#closed = true;
    await this.flush();
    const unwritten = this.unwritten.traces;
    if (unwritten > 0) this.#logger.error({ traces: unwritten }, "the store takes no traces: the last are lost");
  }

  /** The root is in the last line of its trace, also where it ended before what is below it. */
  #takeLong(trace: TraceData, spans: readonly SpanData[], last: boolean): void {
    const earlier = this.#earlier.get(trace);
    if (last) {
      this.#earlier.delete(trace);
      const whole = spans[0] === trace.root;
      const all = whole ? spans : [trace.root, ...spans];
      const handed = whole ? trace.handed : trace.handed - 1;
      this.#builder.add(trace, all, true, handed, earlier === undefined ? undefined : [...earlier.values()]);
      return;
    }
    if (spans.length === 0) return;
    const entities = earlier ?? new Map<string, Entity>();
    this.#earlier.set(trace, entities);
    for (const { entity } of spans) {
      if (entities.size < ENTITIES) entities.set(`${entity.type}/${entity.id}`, entity);
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
    if (this.#waiting.length > 0 && this.#timer === null) this.#arm(AGAIN);
  }

  async #write(): Promise<void> {
    try {
      while (this.#waiting.length > 0) {
        let size = 0;
        let count = 0;
        while (count < this.#waiting.length && size < COMMIT) size += this.#waiting[count++]!.text.length;
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

  #lose(trace: TraceData, last: boolean): void {
    this.#earlier.delete(trace);
    if (!last) return;
    this.#lost++;
    const now = Date.now();
    if (now - this.#saidAt < SAID) return;
    this.#logger.warn(
      { traces: this.#lost - this.#lostSaid },
      "traces are not kept: the store does not take them as fast",
    );
    this.#saidAt = now;
    this.#lostSaid = this.#lost;
  }
}
