/** Gathers lines into a segment. Bytes, not texts: what waits for a quarter of a second is no business of the garbage collector. */
import type { SpanData, TraceData } from "../observability/sink.ts";
import { encodeNumber } from "../storage/encoding.ts";
import { type EarlierEntities, writeLine } from "./line.ts";
import { type Origin, SEPARATOR, type Segment, type SegmentHead } from "./segment.ts";
import { Templates, templateText } from "./templates.ts";
import { latin1Json } from "./text.ts";
import { NEARBY_MS, secondOf } from "./times.ts";

/** Bytes at first; a large trace makes it larger for one segment. */
const ROOM = 320 * 1024;
/** Entities and users that a head names. */
const NAMED = 64;
/** Seconds that a segment which was sealed late is found by. */
const LATE = 120;

export class SegmentBuilder {
  readonly #origin: Origin;
  /** Part of the names of all segments of this process. */
  readonly #process: string;
  readonly #templates = new Templates();
  #bytes = Buffer.allocUnsafeSlow(ROOM);
  #size = 0;
  #base = 0;
  #sealed = 0;
  #traces = 0;
  #spans = 0;
  #from = Number.POSITIVE_INFINITY;
  #completed = false;
  #failed = false;
  #users = new Set<string>();
  #lastUser: string | null | undefined;
  #earlier = new Set<string>();
  #foreign = new Set<string>();
  #seconds = new Set<number>();
  /** When the first thing began that no second tells. */
  #nearest = Number.POSITIVE_INFINITY;
  /** When the last of it ended. */
  #latest = 0;

  constructor(origin: Origin, process: string) {
    this.#origin = origin;
    this.#process = process;
  }

  /** Bytes, without the header. */
  get size(): number {
    return this.#size;
  }

  /** Traces that have ended in it. */
  get traces(): number {
    return this.#traces;
  }

  get spans(): number {
    return this.#spans;
  }

  /**
   * @param spans at least one; the root is the first when they are the last
   * @param handed spans of the trace that went before
   */
  add(trace: TraceData, spans: readonly SpanData[], last: boolean, handed: number, earlier: EarlierEntities): void {
    if (this.#size === 0) this.#base = Math.floor((spans[0] as SpanData).start);
    const line = writeLine({ trace, spans, last, handed, earlier }, this.#base, this.#templates);
    this.#write(SEPARATOR + line);
    this.#spans += spans.length;
    if (last) this.#count(trace, earlier);
    this.#place(trace, spans);
  }

  /** What `Segment.text` would be now. */
  text(): string {
    const header = `${latin1Json({ ...this.#origin, base: this.#base }).slice(0, -1)},"templates":[`;
    const body = this.#bytes.toString("latin1", 0, this.#size);
    return `[${header}${this.#templates.all.map(templateText).join(",")}]}${body}]`;
  }

  /** Ends it, and begins another. */
  seal(): Segment {
    // Whatever the clock of the system does: after everything in it, and after the one before.
    this.#sealed = Math.max(this.#sealed + 1, Date.now(), Math.ceil(this.#latest));
    const name = `${encodeNumber(this.#sealed)}/${this.#process}`;
    const text = this.text();
    const segment = { name, head: this.#head(text.length), text };
    this.#clear();
    return segment;
  }

  #write(text: string): void {
    const end = this.#size + text.length;
    if (end > this.#bytes.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(end, this.#bytes.length * 2));
      this.#bytes.copy(larger, 0, 0, this.#size);
      this.#bytes = larger;
    }
    this.#bytes.write(text, this.#size, "latin1");
    this.#size = end;
  }

  #count({ root, userId }: TraceData, earlier: EarlierEntities): void {
    this.#traces++;
    if (root.status.code === 2) this.#failed = true;
    else this.#completed = true;
    if (userId !== this.#lastUser) {
      this.#users.add(userId ?? "");
      this.#lastUser = userId;
    }
    if (earlier !== undefined) for (const { type, id } of earlier) this.#earlier.add(`${type}/${id}`);
  }

  /** What took long is found by the second it began in. */
  #place(trace: TraceData, spans: readonly SpanData[]): void {
    const { root, foreign } = trace;
    if (foreign) this.#foreign.add(trace.traceId);
    if (root.start < this.#from) this.#from = root.start;
    let end = 0;
    for (let index = 0; index < spans.length; index++) end = Math.max(end, (spans[index] as SpanData).end);
    if (end > this.#latest) this.#latest = end;
    if (end - root.start < NEARBY_MS / 2) {
      if (root.start < this.#nearest) this.#nearest = root.start;
      return;
    }
    this.#seconds.add(secondOf(root.start));
    for (const span of spans) this.#seconds.add(secondOf(span.start));
  }

  #head(size: number): SegmentHead {
    const entities = new Set(this.#earlier);
    for (const { entity } of this.#templates.all) entities.add(`${entity.type}/${entity.id}`);
    // It was sealed late: nobody had time for it.
    if (this.#sealed - this.#nearest > NEARBY_MS) {
      const first = secondOf(this.#nearest);
      const last = Math.min(secondOf(this.#sealed), first + LATE);
      for (let second = first; second <= last; second++) this.#seconds.add(second);
    }
    return {
      traces: this.#traces,
      spans: this.#spans,
      size,
      from: Math.floor(this.#from),
      entities: listed(entities),
      users: listed(this.#users),
      completed: this.#completed,
      failed: this.#failed,
      seconds: [...this.#seconds],
      foreign: [...this.#foreign],
    };
  }

  #clear(): void {
    if (this.#bytes.length > ROOM) this.#bytes = Buffer.allocUnsafeSlow(ROOM);
    this.#size = 0;
    this.#traces = 0;
    this.#spans = 0;
    this.#completed = false;
    this.#failed = false;
    this.#lastUser = undefined;
    this.#from = Number.POSITIVE_INFINITY;
    this.#nearest = Number.POSITIVE_INFINITY;
    this.#latest = 0;
    this.#templates.clear();
    this.#users.clear();
    this.#earlier.clear();
    this.#foreign.clear();
    this.#seconds.clear();
  }
}

const listed = (names: ReadonlySet<string>): string[] | null => (names.size > NAMED ? null : [...names]);
