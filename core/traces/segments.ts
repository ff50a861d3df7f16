/** Reads segments, whether they are still waiting to be written or already in the store. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { promisify } from "node:util";
import { inflateRaw } from "node:zlib";
import type { Attributes, AttributeValue, Entity, SpanData, SpanKind, SpanStatus } from "../observability/span.ts";
import { decodeNumber, NUMBER_LIMIT, SEGMENTS, segmentDataKey, segmentKey, segmentsFrom } from "../storage/keys.ts";
import type { Store } from "../storage/store.ts";
import { type Line, lineText, type Origin, parseHead, SEPARATOR, type Segment, type SegmentHead } from "./segment.ts";

/** Number of heads in the first read; every read takes twice as many as the one before. */
const FIRST_READ_HEADS = 32;
const MAX_READ_HEADS = 1024;

/** The time at which a segment was sealed, in milliseconds since 1970. */
export const sealedAt = (name: string): number => decodeNumber(name.slice(0, 9));

interface ListedSegment {
  readonly name: string;
  readonly head: SegmentHead;
  /** Null when it was removed meanwhile. */
  read(): Promise<SegmentReader | null>;
}

/**
 * All segments of one point in time, the newest first.
 *
 * @param pending the segments that wait to be written at this time, the newest first
 * @param from milliseconds since 1970; segments that were sealed before are left out
 */
export async function* newestSegments(
  store: Store,
  pending: readonly Segment[],
  from: number,
): AsyncGenerator<ListedSegment, void> {
  let next = 0;
  let before = `${SEGMENTS}~`;
  const after = segmentsFrom(Math.min(Math.max(0, from), NUMBER_LIMIT - 1));
  for (let limit = FIRST_READ_HEADS; ; limit = Math.min(MAX_READ_HEADS, 2 * limit)) {
    const heads = (await store.scan({ prefix: SEGMENTS, after, before, reverse: true, limit })).map(parseHead);
    for (const { name, head } of heads) {
      while (next < pending.length && pending[next]!.name > name) yield listWaiting(pending[next++]!);
      // Skips a pending segment that has been written meanwhile.
      if (next < pending.length && pending[next]!.name === name) next++;
      yield { name, head, read: () => readSegment(store, name) };
    }
    if (heads.length < limit) break;
    before = segmentKey(heads.at(-1)!.name);
  }
  while (next < pending.length) yield listWaiting(pending[next++]!);
}

function listWaiting({ name, head, text }: Segment): ListedSegment {
  return { name, head, read: async () => SegmentReader.of(await text) };
}

export async function readSegment(store: Store, name: string): Promise<SegmentReader | null> {
  // A store in memory answers without yielding to the event loop, so yield here between two segments.
  await nextTurn();
  const row = await store.get(segmentDataKey(name));
  return row === undefined ? null : SegmentReader.of(row.value);
}

async function unpack(text: string): Promise<string> {
  if (text.startsWith(SEPARATOR)) return text;
  if (text.startsWith("[")) return readColumns(text).map(lineText).join("");
  const lines = await promisify(inflateRaw)(Buffer.from(text, "base64")).catch(() => "");
  return lines.toString();
}

/** Reads the lines of a segment lazily. Skips those that cannot be read. */
export class SegmentReader {
  readonly #lines: string;

  private constructor(lines: string) {
    this.#lines = lines;
  }

  /** @param text as it is in the store */
  static async of(text: string): Promise<SegmentReader> {
    return new SegmentReader(await unpack(text));
  }

  /** Yields the last line first. */
  *lines(): Generator<Line> {
    for (let end = this.#lines.length; end > 0; ) {
      const start = this.#lines.lastIndexOf(SEPARATOR, end - 1);
      yield* this.#read(start);
      end = start;
    }
  }

  linesOf(traceId: string): Line[] {
    const needle = `${SEPARATOR}{"traceId":"${traceId}"`;
    const found: Line[] = [];
    for (let at = this.#lines.indexOf(needle); at >= 0; at = this.#lines.indexOf(needle, at + 1))
      found.push(...this.#read(at));
    return found;
  }

  /** The line that contains the span. The id alone is not enough: it may also be that of a link. */
  lineWith(spanId: string): Line | undefined {
    const needle = `"spanId":"${spanId}"`;
    for (let at = this.#lines.indexOf(needle); at >= 0; ) {
      const [line] = this.#read(this.#lines.lastIndexOf(SEPARATOR, at));
      if (line?.spans.some((span) => span.spanId === spanId)) return line;
      const next = this.#lines.indexOf(SEPARATOR, at);
      at = next < 0 ? -1 : this.#lines.indexOf(needle, next);
    }
    return undefined;
  }

  /** The line that begins at a separator. */
  #read(start: number): Line[] {
    const next = this.#lines.indexOf(SEPARATOR, start + 1);
    try {
      return [JSON.parse(this.#lines.slice(start, next < 0 ? undefined : next)) as Line];
    } catch {
      return [];
    }
  }
}

// Reads segments that were written before they were lines of JSON: columns, in which spans list what differs from a template.

type WrittenEntity = [type: Entity["type"], id: string, name: string];
type Template = [
  name: string,
  kind: SpanKind,
  ...entity: WrittenEntity,
  keys: string[],
  values: (AttributeValue | null)[],
];
interface Header extends Origin {
  readonly base: number;
  readonly templates: readonly Template[];
}

/** Times in microseconds after the line's own. `differences`: alternating an index of the template's keys, and a value. */
type Span = [
  template: number,
  spanId: string,
  parent: number | string,
  start: number,
  duration: number,
  status: SpanStatus["code"] | [SpanStatus["code"], string],
  differences: unknown[],
  events?: [string, number, Attributes | null][],
  links?: [string, string][],
];
type Trace = [
  id: string,
  last: number,
  handed: number,
  userId: string | null,
  offset: number,
  WrittenEntity[],
  ...Span[],
];

/** The traces of a segment, without those that cannot be read. */
function readColumns(text: string): Line[] {
  const [header = "", ...traces] = text.slice(1, -1).split(",\n");
  return readable(header, (head: Header) =>
    traces.flatMap((trace) => readable(trace, (written: Trace) => [readTrace(written, head)])),
  );
}

function readable<T>(text: string, read: (written: T) => Line[]): Line[] {
  try {
    return read(JSON.parse(text));
  } catch {
    return [];
  }
}

function readTrace(trace: Trace, { base, templates, ...origin }: Header): Line {
  const [traceId, last, handed, userId, offset, entities, ...written] = trace;
  let first: Attributes | undefined;
  const spans = written.map((span): SpanData => {
    const [place, spanId, parent, begun, duration, status, differences, events = [], links = []] = span;
    const [name, kind, type, id, called, keys, values] = templates[place]!;
    const own: unknown[] = [...values];
    for (let at = 0; at + 1 < differences.length; at += 2) own[differences[at] as number] = differences[at + 1];
    const attributes: Attributes = {};
    for (const [index, key] of keys.entries()) {
      const value = own[index] ?? undefined;
      // An object stands for the value that the first span of the line has.
      const isAsFirst = typeof value === "object" && !Array.isArray(value);
      attributes[key] = isAsFirst ? first?.[key] : (value as AttributeValue | undefined);
    }
    first ??= attributes;
    const start = base + offset + begun / 1000;
    const [code, message] = typeof status === "number" ? [status] : status;
    return {
      traceId,
      spanId,
      parentSpanId: parent === -1 ? null : typeof parent === "number" ? written[parent]![1] : parent,
      name,
      kind,
      entity: { type, id, name: called },
      start,
      end: start + duration / 1000,
      attributes,
      status: { code, message },
      events: events.map(([name, time, attributes]) => ({ name, time, attributes })),
      links: links.map(([traceId, spanId]) => ({ traceId, spanId })),
    };
  });
  const known = entities.map(([type, id, name]) => ({ type, id, name }));
  return { traceId, last: last === 1, handed, userId, entities: known, origin, spans };
}
