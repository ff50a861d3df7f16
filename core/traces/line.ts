/**
 * The spans of one trace as one line of a segment, and back:
 *
 *     ["TRACE", last, handed, user | null, base, [entities], span, span, ...]
 *     span: [template, "SPAN", parent, start, duration, status, [differences], events?, links?]
 *
 * `last`: 1 when the trace has ended with these spans. `handed`: number of its spans in earlier lines. `base`: whole milliseconds after the
 * base of the segment. `entities`: [type, id, name] of the entities of earlier lines. `parent`: -1 for none, else the index of the
 * span in this line, or its id. `start` and `duration`: microseconds, from `base`. `status`: a code, or [code, message].
 */
import type { SpanData, SpanEvent, TraceData } from "../observability/sink.ts";
import type { Attributes, Entity, SpanContext, SpanStatus } from "../observability/span.ts";
import { attributesFrom, type SpanTemplate, type Templates } from "./templates.ts";
import { latin1Json } from "./text.ts";

export interface Line {
  readonly traceId: string;
  readonly last: boolean;
  readonly handed: number;
  readonly userId: string | null;
  /** The entities of spans in earlier lines. */
  readonly entities: readonly Entity[];
  /** In the last line of a trace the first span is the root. */
  readonly spans: readonly SpanData[];
}

/** The entities whose spans are in earlier lines of the trace; nearly always undefined. */
export type EarlierEntities = readonly Entity[] | undefined;

interface LineSource {
  readonly trace: TraceData;
  readonly spans: readonly SpanData[];
  readonly last: boolean;
  readonly handed: number;
  readonly earlier: EarlierEntities;
}

/** @param base of the segment, in whole milliseconds */
export function writeLine(
  { trace, spans, last, handed, earlier }: LineSource,
  base: number,
  templates: Templates,
): string {
  const first = spans[0]!;
  const lineBase = Math.floor(first.start);
  const user = trace.userId === null ? "null" : latin1Json(trace.userId);
  let text = `["${trace.traceId}",${last ? 1 : 0},${handed},${user},${lineBase - base},${entitiesText(earlier)}`;
  for (let index = 0; index < spans.length; index++) {
    const span = spans[index]!;
    const { template, differences } = templates.match(span, index === 0 ? null : first.attributes);
    const parent = parentText(spans, index);
    const start = Math.round((span.start - lineBase) * 1000);
    const duration = Math.round((span.end - span.start) * 1000);
    text += `,[${template.index},"${span.spanId}",${parent},${start},${duration},${statusText(span.status)},[${differences}]`;
    text += span.events === null && span.links === null ? "]" : `${eventsAndLinks(span)}]`;
  }
  return `${text}]`;
}

/** The parent as an index or id; it is nearly always the root or the previous span. */
function parentText(spans: readonly SpanData[], index: number): string {
  const { parentSpanId } = spans[index]!;
  if (parentSpanId === null) return "-1";
  if (index > 0) {
    if (spans[0]!.spanId === parentSpanId) return "0";
    if (spans[index - 1]!.spanId === parentSpanId) return String(index - 1);
  }
  return `"${parentSpanId}"`;
}

const statusText = ({ code, message }: SpanStatus): string =>
  message === undefined ? String(code) : `[${code},${latin1Json(message)}]`;

function entitiesText(entities: EarlierEntities): string {
  if (entities === undefined) return "[]";
  return `[${entities.map(({ type, id, name }) => `[${latin1Json(type)},${latin1Json(id)},${latin1Json(name)}]`).join(",")}]`;
}

function eventsAndLinks({ events, links }: SpanData): string {
  const happened = (events ?? []).map(({ name, time, attributes }) => {
    return `[${latin1Json(name)},${time},${latin1Json(attributes)}]`;
  });
  const linked = (links ?? []).map(({ traceId, spanId }) => `["${traceId}","${spanId}"]`);
  return `,[${happened.join(",")}],[${linked.join(",")}]`;
}

type WrittenSpan = [
  template: number,
  spanId: string,
  parent: number | string,
  start: number,
  duration: number,
  status: 0 | 1 | 2 | [0 | 1 | 2, string],
  differences: unknown[],
  events?: [string, number, Attributes | null][],
  links?: [string, string][],
];
type WrittenLine = [
  string,
  number,
  number,
  string | null,
  number,
  [Entity["type"], string, string][],
  ...WrittenSpan[],
];

/** @throws Error when the text is not a line */
export function readLine(text: string, base: number, templates: readonly SpanTemplate[]): Line {
  const [traceId, last, handed, userId, offset, entities, ...written] = JSON.parse(text) as WrittenLine;
  const lineBase = base + offset;
  let first: Attributes = {};
  const spans = written.map((span, index): SpanData => {
    const [place, spanId, parent, start, duration, status, differences, events = [], links = []] = span;
    const template = templates[place]!;
    const begun = lineBase + start / 1000;
    const attributes = attributesFrom(template, differences, first);
    if (index === 0) first = attributes;
    return {
      traceId,
      spanId,
      parentSpanId: parent === -1 ? null : typeof parent === "number" ? written[parent]![1] : parent,
      name: template.name,
      kind: template.kind,
      entity: template.entity,
      start: begun,
      end: begun + duration / 1000,
      attributes,
      status: typeof status === "number" ? { code: status } : { code: status[0], message: status[1] },
      events: events.map(readEvent),
      links: links.map(([linked, linkedSpan]): SpanContext => ({ traceId: linked, spanId: linkedSpan })),
    };
  });
  return {
    traceId,
    last: last === 1,
    handed,
    userId,
    entities: entities.map(([type, id, name]) => ({ type, id, name })),
    spans,
  };
}

const readEvent = ([name, time, attributes]: [string, number, Attributes | null]): SpanEvent => ({
  name,
  time,
  attributes,
});
