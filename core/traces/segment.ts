/** A segment: the spans of many traces, one line for each trace (line.ts), which are written and removed together. */
import { type Line, readLine } from "./line.ts";
import { readTemplate, type SpanTemplate } from "./templates.ts";

/** A summary that lets searches skip segments in which nothing can match. */
export interface SegmentHead {
  /** Number of traces that end in it, of spans, and of characters. */
  readonly traces: number;
  readonly spans: number;
  readonly size: number;
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

/** A segment that is written, or about to be. */
export interface Segment {
  /** `#sealedAt/PROCESS`, so that the segments of all processes sort by the time they were sealed. */
  readonly name: string;
  readonly head: SegmentHead;
  readonly text: string;
}

/** The service that wrote a segment. */
export interface Origin {
  readonly service: string;
  readonly version: string;
  /** The version of Penstock. */
  readonly scope: string;
}

interface Header extends Origin {
  readonly base: number;
  readonly templates: readonly unknown[];
}

/** Separates lines: JSON text contains no line feed. */
export const SEPARATOR = ",\n";

interface Head {
  readonly origin: Origin;
  readonly base: number;
  readonly templates: readonly SpanTemplate[];
}

/** Reads the text of a segment lazily. Skips lines that cannot be read; with an unreadable header these are all. */
export class SegmentReader {
  readonly #text: string;
  #header: Head | null | undefined;

  /** @param text `[header,\nline,\nline]` */
  constructor(text: string) {
    this.#text = text;
  }

  /** The origin of the lines. Valid when a line could be read. */
  get origin(): Origin {
    return this.#head()!.origin;
  }

  /** Yields the last line first. */
  *lines(): Generator<Line> {
    const text = this.#text;
    let end = text.length - 1;
    for (;;) {
      const start = text.lastIndexOf(SEPARATOR, end - 1);
      if (start < 0) return;
      const line = this.#read(start + SEPARATOR.length, end);
      if (line !== null) yield line;
      end = start;
    }
  }

  linesOf(traceId: string): Line[] {
    const needle = `${SEPARATOR}["${traceId}"`;
    const found: Line[] = [];
    for (let at = this.#text.indexOf(needle); at >= 0; at = this.#text.indexOf(needle, at + 1)) {
      const line = this.#lineAt(at + SEPARATOR.length);
      if (line !== null) found.push(line);
    }
    return found;
  }

  /** The line that contains the span. The id alone is not enough: it may also be a parent's id, or part of an attribute. */
  lineWith(spanId: string): Line | null {
    const needle = `"${spanId}"`;
    for (let at = this.#text.indexOf(needle); at >= 0; ) {
      const start = this.#text.lastIndexOf(SEPARATOR, at);
      if (start >= 0) {
        const line = this.#lineAt(start + SEPARATOR.length);
        if (line?.spans.some((span) => span.spanId === spanId)) return line;
      }
      const next = this.#text.indexOf(SEPARATOR, at);
      at = next < 0 ? -1 : this.#text.indexOf(needle, next);
    }
    return null;
  }

  #lineAt(start: number): Line | null {
    const end = this.#text.indexOf(SEPARATOR, start);
    return this.#read(start, end < 0 ? this.#text.length - 1 : end);
  }

  #read(start: number, end: number): Line | null {
    const head = this.#head();
    if (head === null) return null;
    try {
      return readLine(this.#text.slice(start, end), head.base, head.templates);
    } catch {
      return null;
    }
  }

  #head(): Head | null {
    this.#header ??= readHeader(this.#text);
    return this.#header;
  }
}

function readHeader(text: string): Head | null {
  const end = text.indexOf(SEPARATOR);
  try {
    const written = JSON.parse(text.slice(1, end < 0 ? text.length - 1 : end)) as Header;
    const { base, templates, ...origin } = written;
    return { origin, base, templates: templates.map(readTemplate) };
  } catch {
    return null;
  }
}
