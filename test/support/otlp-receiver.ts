/** A collector of the test: takes OTLP/HTTP with JSON, and answers as it is told. Written from the protocol's description. */
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { gunzipSync } from "node:zlib";

type AnyValue = {
  stringValue?: string;
  boolValue?: boolean;
  intValue?: number | string;
  doubleValue?: number;
  arrayValue?: { values: AnyValue[] };
};

interface KeyValue {
  key: string;
  value: AnyValue;
}

/** As it is on the wire. */
interface WireSpan {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  kind: number;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes: KeyValue[];
  events: { name: string; timeUnixNano: string; attributes: KeyValue[] }[];
  links: { traceId: string; spanId: string }[];
  status: { code: number; message?: string };
  flags: number;
}

interface Received {
  path: string;
  headers: IncomingMessage["headers"];
  body: unknown;
  /** Of the resource. */
  resource: Record<string, unknown>;
  scope: { name: string; version: string };
  spans: WireSpan[];
}

export interface Receiver {
  readonly url: string;
  /** Batches, in the order they came; refused ones too. */
  readonly received: Received[];
  /** Status and body of the next answers, in order; then 200 with `{}`. `hang`: none at all. */
  readonly answers: ({ status: number; body?: object; headers?: Record<string, string> } | "hang")[];
  spans(): WireSpan[];
  close(): Promise<void>;
}

const HEX = (digits: number) => new RegExp(`^[0-9a-f]{${digits}}$`);

export async function startReceiver(): Promise<Receiver> {
  const received: Received[] = [];
  const answers: Receiver["answers"] = [];
  const server = createServer((request, response) => void take(request, response));

  async function take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const bytes = Buffer.concat(chunks);
    assert.equal(request.method, "POST");
    assert.equal(request.headers["content-type"], "application/json");
    const text = request.headers["content-encoding"] === "gzip" ? gunzipSync(bytes).toString() : bytes.toString();
    received.push({ path: request.url!, headers: request.headers, body: JSON.parse(text), ...decode(text) });
    const answer = answers.shift() ?? { status: 200 };
    if (answer === "hang") return;
    response.writeHead(answer.status, { "content-type": "application/json", ...answer.headers });
    response.end(JSON.stringify(answer.body ?? {}));
  }

  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    answers,
    spans: () => received.flatMap(({ spans }) => spans),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Every field of every span has the form that the protocol gives it. */
function decode(text: string): Pick<Received, "resource" | "scope" | "spans"> {
  const { resourceSpans } = JSON.parse(text);
  assert.equal(resourceSpans.length, 1, "all spans come from one service");
  const [{ resource, scopeSpans }] = resourceSpans;
  assert.equal(scopeSpans.length, 1);
  const [{ scope, spans }] = scopeSpans as [{ scope: Received["scope"]; spans: WireSpan[] }];
  for (const span of spans) {
    assert.match(span.traceId, HEX(32));
    assert.match(span.spanId, HEX(16));
    if (span.parentSpanId !== undefined) assert.match(span.parentSpanId, HEX(16));
    assert.ok([1, 2, 3].includes(span.kind), "internal, server or client");
    for (const time of [span.startTimeUnixNano, span.endTimeUnixNano]) assert.match(time, /^\d{19}$/);
    assert.ok(BigInt(span.endTimeUnixNano) >= BigInt(span.startTimeUnixNano));
    assert.ok([0, 1, 2].includes(span.status.code));
    valuesOf(span.attributes);
    for (const event of span.events) valuesOf(event.attributes);
    for (const link of span.links) assert.match(`${link.traceId}${link.spanId}`, HEX(48));
  }
  return { resource: valuesOf(resource.attributes), scope, spans };
}

/** Attributes as plain values; throws for one that is of no type or of several. */
export function valuesOf(attributes: readonly KeyValue[]): Record<string, unknown> {
  const values = Object.fromEntries(attributes.map(({ key, value }) => [key, plain(value)]));
  assert.equal(Object.keys(values).length, attributes.length, "each attribute is there once");
  return values;
}

function plain(value: AnyValue): unknown {
  const [type, ...others] = Object.keys(value) as (keyof AnyValue)[];
  assert.deepEqual(others, []);
  if (type === "arrayValue") return value.arrayValue!.values.map(plain);
  if (type === "intValue") return Number(value.intValue);
  assert.ok(type === "stringValue" || type === "boolValue" || type === "doubleValue", String(type));
  return value[type];
}
