/** Reads segments that were written before they were lines of JSON: columns, in which spans list what differs from a template. */
import type { SpanData } from "../observability/sink.ts";
import type { Attributes, AttributeValue, Entity, SpanKind, SpanStatus } from "../observability/span.ts";
import type { Line, Origin } from "./segment.ts";

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
export function readColumns(text: string): Line[] {
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
