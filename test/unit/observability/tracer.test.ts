/** The tracer: ids, parents, sampling, traceparent, what is handed over and when. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Entity, SpanData, TraceData } from "../../../core/observability/span.ts";
import { parseTraceparent } from "../../../core/observability/traceparent.ts";
import { createTracer } from "../../../core/observability/tracer.ts";
import { TraceSink, tracing, treeOf } from "../../support/trace-sink.ts";

const AGENT: Entity = { type: "agent", id: "a", name: "A" };
const TRACE = "0af7651916cd43dd8448eb211c80319c";
const SPAN = "b7ad6b7169203331";

test("ids say when they began, rise, and are never given twice", () => {
  const { tracer, sink } = tracing();
  for (let count = 0; count < 20_000; count++) tracer.begin("run", 0, AGENT)!.child("x", 0).finish();
  const ids = sink.begun.map(({ traceId }) => traceId);
  assert.equal(new Set(ids).size, ids.length);
  const spanIds = sink.begun.flatMap(({ spans }) => spans.map(({ spanId }) => spanId));
  assert.equal(new Set(spanIds).size, 40_000);
  for (const { traceId, spans } of sink.begun) {
    assert.match(traceId, /^[0-9a-f]{32}$/);
    const time = Number.parseInt(traceId.slice(0, 12), 16);
    assert.equal(time, Math.floor(spans[0]!.start));
    // The clock of spans is set by that of the system now and then: which time it is, not how they keep step.
    assert.ok(Math.abs(time - Date.now()) < 60_000, `${time} is not now`);
    for (const { spanId, start } of spans) {
      assert.match(spanId, /^[0-9a-f]{16}$/);
      assert.equal(Number.parseInt(spanId.slice(0, 10), 16), Math.floor(start) % 2 ** 40);
    }
  }
});

test("a trace is handed over once, when its last span has ended, in the order in which they began", () => {
  const { tracer, sink } = tracing();
  const root = tracer.begin("run", 0, AGENT, "ada")!;
  const late = root.child("late", 0);
  root.child("early", 0).finish();
  root.finish({ code: 1 });
  assert.equal(sink.traces.length, 0);
  late.fail("timeout", "took too long");
  assert.deepEqual(treeOf(sink.only), ["run", "  late ! took too long", "  early"]);
  const [first, second] = sink.only as [SpanData, SpanData];
  assert.deepEqual(first.status, { code: 1 });
  assert.equal(second.attributes!["error.type"], "timeout");
  assert.equal(second.parentSpanId, first.spanId);
  assert.equal(first.parentSpanId, null);
  assert.equal(sink.begun[0]!.userId, "ada");
  for (const { start, end } of sink.only) assert.ok(end >= start);
});

test("a span that has ended stays as it is, and a trace that has ended takes nothing more", () => {
  const { tracer, sink } = tracing();
  const root = tracer.begin("run", 0, AGENT)!;
  root.finish();
  const [span] = sink.only as [SpanData];
  const { end } = span;
  root.set({ late: 1 });
  root.content("input", "late");
  root.event("late");
  root.link({ traceId: TRACE, spanId: SPAN });
  root.fail("late", "late");
  root.child("late", 0).finish();
  assert.deepEqual(
    [span.end, span.attributes, span.events, span.links, span.status],
    [end, null, null, null, { code: 0 }],
  );
  assert.equal(sink.only.length, 1);
});

test("of a long trace what has ended is handed over while it goes on", () => {
  const { tracer, sink } = tracing();
  const root = tracer.begin("run", 0, AGENT)!;
  const trace = sink.begun[0] as TraceData;
  const open = root.child("open", 0);
  let most = 0;
  for (let count = 0; count < 1000; count++) {
    root.child("step", 0).finish();
    most = Math.max(most, trace.spans.length);
  }
  assert.ok(most <= 258, `${most} spans were held`);
  assert.ok(trace.handed >= 768);
  open.finish();
  root.finish();
  assert.equal(new Set(sink.only.map(({ spanId }) => spanId)).size, 1002);
});

test("a child belongs to its parent's entity unless it is the run of another one", () => {
  const { tracer, sink } = tracing();
  const root = tracer.begin("run", 0, AGENT)!;
  const other: Entity = { type: "workflow", id: "w", name: "W" };
  root.child("model", 2).finish();
  root.begin("tool", 0, { type: "tool", id: "t", name: "T" }).finish();
  root.begin("workflow", 0, other).finish();
  root.finish();
  assert.deepEqual(
    sink.only.map(({ entity }) => entity),
    [AGENT, AGENT, AGENT, other],
  );
});

test("sample 0 and no sink make no tracer; a share traces about that share", () => {
  const sink = new TraceSink();
  const settings = { content: "none", secrets: [] } as const;
  assert.equal(createTracer({ sample: 0, ...settings }, [sink]), null);
  assert.equal(createTracer({ sample: 1, ...settings }, []), null);
  const tracer = createTracer({ sample: 0.25, ...settings }, [sink])!;
  let traced = 0;
  for (let count = 0; count < 4000; count++) {
    const span = tracer.begin("run", 0, AGENT);
    if (span !== null) traced++;
    span?.finish();
  }
  // Seven standard deviations from 1000.
  assert.ok(traced > 800 && traced < 1200, `${traced} of 4000`);
  assert.equal(sink.traces.length, traced);
});

test("a caller's trace is continued, unless the caller does not record it", () => {
  const { tracer, sink } = tracing();
  tracer.continue(`00-${TRACE}-${SPAN}-01`, "run", 0, AGENT, undefined)!.finish();
  assert.equal(tracer.continue(`00-${TRACE}-${SPAN}-00`, "run", 0, AGENT, undefined), null);
  const [root] = sink.only as [SpanData];
  assert.deepEqual([root.traceId, root.parentSpanId, sink.begun[0]!.foreign], [TRACE, SPAN, true]);
  assert.notEqual(root.spanId, SPAN);
});

test("a caller cannot make anything be kept that is not sampled here", () => {
  const sink = new TraceSink();
  const tracer = createTracer({ sample: 0.000001, content: "none", secrets: [] }, [sink])!;
  for (let count = 0; count < 100; count++) tracer.continue(`00-${TRACE}-${SPAN}-01`, "run", 0, AGENT, undefined);
  assert.equal(sink.begun.length, 0);
});

test("traceparent: what is no such header begins a trace of its own", () => {
  const good = `00-${TRACE}-${SPAN}-01`;
  assert.deepEqual(parseTraceparent(good), { traceId: TRACE, spanId: SPAN, sampled: true });
  assert.equal(parseTraceparent(`00-${TRACE}-${SPAN}-02`)?.sampled, false);
  assert.equal(parseTraceparent(`00-${TRACE}-${SPAN}-ff`)?.sampled, true);
  assert.equal(parseTraceparent(`cc-${TRACE}-${SPAN}-01-what-comes-later`)?.traceId, TRACE);
  assert.equal(parseTraceparent(`cc-${TRACE}-${SPAN}-01`)?.traceId, TRACE);
  const bad = [
    "",
    "x",
    good.toUpperCase(),
    `ff-${TRACE}-${SPAN}-01`,
    `00-${"0".repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${"0".repeat(16)}-01`,
    `00-${TRACE}-${SPAN}-01-more`,
    `00-${TRACE}-${SPAN}-1`,
    `00-${TRACE.slice(1)}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-01, ${good}`,
    ` ${good}`,
    `cc-${TRACE}-${SPAN}-01${"-x".repeat(300)}`,
    `cc-${TRACE}-${SPAN}-01x`,
  ];
  for (const header of bad) {
    assert.equal(parseTraceparent(header), null, header);
    const { tracer, sink } = tracing();
    tracer.continue(header, "run", 0, AGENT, undefined)!.finish();
    assert.equal(sink.begun[0]!.foreign, false);
    assert.notEqual(sink.begun[0]!.traceId, TRACE);
  }
});
