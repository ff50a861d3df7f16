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

export class SegmentBuilder {
  readonly #origin: Origin;
  /** Part of the names of all segments of this process. */
  readonly #process: string;
  readonly #templates = new Templates();
  #bytes = Buffer.allocUnsafeSlow(BUFFER_BYTES);
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
  /** The earliest start of a trace that has no second in `#seconds`. */
  #earliestNear = Number.POSITIVE_INFINITY;
  /** The latest end of a span. */
  #latest = 0;

  constructor(origin: Origin, process: string) {
    this.#origin = origin;
    this.#process = process;
  }

  /** Size in bytes, without the header. */
  get size(): number {
    return this.#size;
  }

  /** Number of traces that end in it. */
  get traces(): number {
    return this.#traces;
  }

  get spans(): number {
    return this.#spans;
  }

  /**
   * @param spans at least one; with `last` the first one is the root
   * @param handed number of spans of the trace in earlier lines
   */
  add(trace: TraceData, spans: readonly SpanData[], last: boolean, handed: number, earlier: EarlierEntities): void {
    if (this.#size === 0) this.#base = Math.floor((spans[0] as SpanData).start);
    const line = writeLine({ trace, spans, last, handed, earlier }, this.#base, this.#templates);
    this.#write(SEPARATOR + line);
    this.#spans += spans.length;
    if (last) this.#count(trace, earlier);
    this.#place(trace, spans);
  }

  /** The value of `Segment.text` if it were sealed now. */
  text(): string {
    const header = `${latin1Json({ ...this.#origin, base: this.#base }).slice(0, -1)},"templates":[`;
    const body = this.#bytes.toString("latin1", 0, this.#size);
    return `[${header}${this.#templates.all.map(templateText).join(",")}]}${body}]`;
  }

  /** Returns the finished segment, and starts another one. */
  seal(): Segment {
    // After everything in the segment, and after the previous segment, even when the system clock is set back.
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

  /** Indexes the trace. Long traces are found by the seconds in which their spans started. */
  #place(trace: TraceData, spans: readonly SpanData[]): void {
    const { root, foreign } = trace;
    if (foreign) this.#foreign.add(trace.traceId);
    if (root.start < this.#from) this.#from = root.start;
    let end = 0;
    for (let index = 0; index < spans.length; index++) end = Math.max(end, (spans[index] as SpanData).end);
    if (end > this.#latest) this.#latest = end;
    if (end - root.start < NEARBY_MS / 2) {
      if (root.start < this.#earliestNear) this.#earliestNear = root.start;
      return;
    }
    this.#seconds.add(wholeSeconds(root.start));
    for (const span of spans) this.#seconds.add(wholeSeconds(span.start));
  }

  #head(size: number): SegmentHead {
    const entities = new Set(this.#earlier);
    for (const { entity } of this.#templates.all) entities.add(`${entity.type}/${entity.id}`);
    // The segment was sealed late, because the process was busy: short traces need their seconds too.
    if (this.#sealed - this.#earliestNear > NEARBY_MS) {
      const first = wholeSeconds(this.#earliestNear);
      const last = Math.min(wholeSeconds(this.#sealed), first + MAX_LATE_SECONDS);
      for (let second = first; second <= last; second++) this.#seconds.add(second);
    }
    return {
      traces: this.#traces,
      spans: this.#spans,
      size,
      from: Math.floor(this.#from),
      entities: namesIfFew(entities),
      users: namesIfFew(this.#users),
      completed: this.#completed,
      failed: this.#failed,
      seconds: [...this.#seconds],
      foreign: [...this.#foreign],
    };
  }

  #clear(): void {
    if (this.#bytes.length > BUFFER_BYTES) this.#bytes = Buffer.allocUnsafeSlow(BUFFER_BYTES);
    this.#size = 0;
    this.#traces = 0;
    this.#spans = 0;
    this.#completed = false;
    this.#failed = false;
    this.#lastUser = undefined;
    this.#from = Number.POSITIVE_INFINITY;
    this.#earliestNear = Number.POSITIVE_INFINITY;
    this.#latest = 0;
    this.#templates.clear();
    this.#users.clear();
    this.#earlier.clear();
    this.#foreign.clear();
    this.#seconds.clear();
  }
}

const namesIfFew = (names: ReadonlySet<string>): string[] | null => (names.size > MAX_LISTED_NAMES ? null : [...names]);
