/** A piece of what was traced: the spans of many traces, one line for each (line.ts), written and removed together. */
import { type Line, readLine } from "./line.ts";
import { readTemplate, type SpanTemplate } from "./templates.ts";

/** Small, so that a search passes over segments that hold nothing of what it looks for. */
export interface SegmentHead {
  /** Traces that end in it, spans, and characters of its text. */
  readonly traces: number;
  readonly spans: number;
  readonly size: number;
  /** When the first of all that has spans in it began: whole milliseconds since 1970. */
  readonly from: number;
  /** `type/id` of all whose spans the ended traces have; null: too many to say. */
  readonly entities: readonly string[] | null;
  /** Whose traces they are; null: too many to say. An empty text is nobody. */
  readonly users: readonly string[] | null;
  /** Whether there are traces that went well, that failed. */
  readonly completed: boolean;
  readonly failed: boolean;
  /** Seconds in which something in it began, long before it was sealed. */
  readonly seconds: readonly number[];
  /** Traces whose ids came from callers. */
  readonly foreign: readonly string[];
}

/** One that is written, or about to be. */
export interface Segment {
  /** `#sealed/PROCESS`: segments of all processes in the order of their sealing. */
  readonly name: string;
  readonly head: SegmentHead;
  readonly text: string;
}

/** What a segment was written by. */
export interface Origin {
  readonly service: string;
  readonly version: string;
  /** Of Penstock. */
  readonly scope: string;
}

interface Header extends Origin {
  readonly base: number;
  readonly templates: readonly unknown[];
}

/** Lines are separated by it; JSON text holds no line feed. */
export const SEPARATOR = ",\n";

interface Head {
  readonly origin: Origin;
  readonly base: number;
  readonly templates: readonly SpanTemplate[];
}

/** What a segment's text says, read as far as it is asked for. What cannot be read of it is left out: a line, or all. */
export class SegmentReader {
  readonly #text: string;
  #header: Head | null | undefined;

  /** @param text `[header,\nline,\nline]` */
  constructor(text: string) {
    this.#text = text;
  }

  /** Of lines that were read. */
  get origin(): Origin {
    return this.#head()!.origin;
  }

  /** The last first. */
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

  /** The line that holds the span. Its id may also stand where it is the parent of others, or in what a span says. */
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
