/** How traces are kept: on every engine, out of what a tracer would hand over. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { resolve } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import zlib from "node:zlib";
import { EVERYTHING } from "../../core/identity/principal.ts";
import { unavailable } from "../../core/lib/errors.ts";
import type { Manifest } from "../../core/manifest/manifest.ts";
import type { AttributeValue } from "../../core/observability/span.ts";
import { segmentDataKey, segmentKey, TRACE_COUNTERS } from "../../core/storage/keys.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { createTraceRetention, openTraces, type Traces } from "../../core/traces/open.ts";
import { ENGINES } from "../support/executions.ts";
import { silent } from "../support/providers.ts";
import { FLOW, HandTrace, now, record, spanIdAt, traceIdAt } from "../support/spans.ts";
import { otherProcess, recordingLogger, temporaryFolder } from "../support/storage.ts";

const DAY = 86_400_000;
const MANIFEST = { name: "T", version: "1", observability: { sample: 1, retention: 7 * DAY } } as unknown as Manifest;
const open = (store: Store, logger = silent): Traces => openTraces(MANIFEST, store, logger);
const all = (traces: Traces) => traces.for(EVERYTHING);
const listed = async (traces: Traces, limit = 200) =>
  (await all(traces).list({ limit, offset: 0 })).map(({ traceId }) => traceId);

/** Every key that traces have. */
async function keysOf(store: Store): Promise<string[]> {
  const rows = await Promise.all(["th/", "td/", "tl/", "tf/"].map((prefix) => store.scan({ prefix, limit: 10_000 })));
  return rows.flat().map(({ key }) => key);
}

const counters = async (store: Store) =>
  (await store.getMany(Object.values(TRACE_COUNTERS))).map((row) => Number(row?.value ?? 0));

for (const engine of ENGINES) {
  describe(`traces on ${engine.name}`, () => {
    test("several processes write to one store: each shows what all have written, by time", async (t) => {
      const store = await engine.open(t);
      const [one, other] = [open(store), open(store)];
      const made: string[] = [];
      for (let round = 0; round < 4; round++) {
        for (const traces of [one, other]) {
          made.push(record(traces.sink).id, record(traces.sink).id);
          await traces.status();
          // What two processes write in one millisecond has no order.
          await sleep(2);
        }
      }
      assert.deepEqual(await listed(one), made.toReversed());
      assert.deepEqual(await listed(other), made.toReversed());
      for (const id of made) assert.equal((await all(other).get(id)).spanCount, 2);
      assert.equal((await other.status()).traceCount, 16);
    });

    test("what is older than the retention goes, the oldest of what is too much goes, and the counters go with it", async (t) => {
      const store = await engine.open(t);
      const traces = open(store);
      for (let index = 0; index < 40; index++) {
        record(traces.sink, index % 2 ? {} : { traceId: traceIdAt(index), start: now() - 30_000 });
        await traces.status();
      }
      const keep = (retention: number, size: number) =>
        createTraceRetention(store, { retention, size, logger: silent });
      const everything = await counters(store);
      await keep(DAY, everything[2]!).removeOld(Date.now());
      assert.deepEqual(await counters(store), everything);
      // Two processes at once.
      const half = Math.floor(everything[2]! / 2);
      await Promise.all([keep(DAY, half).removeOld(Date.now()), keep(DAY, half).removeOld(Date.now())]);
      await keep(DAY, half).removeOld(Date.now());
      const [count, spans, size] = await counters(store);
      assert.ok(size! <= half && size! > half - everything[2]! / 20, `${size} of ${everything[2]}`);
      assert.ok(count! >= 18 && count! <= 20 && spans === 2 * count!, `${count} traces, ${spans} spans`);
      assert.equal((await listed(traces)).length, count);
      await keep(DAY, half).removeOld(Date.now() + 2 * DAY);
      assert.deepEqual(await counters(store), [0, 0, 0]);
      assert.deepEqual(await keysOf(store), []);
    });

    test("rows that were cut off or are gone are passed over: what else there is is shown", async (t) => {
      const store = await engine.open(t);
      const traces = open(store);
      const ids: string[] = [];
      for (let index = 0; index < 5; index++) {
        ids.push(record(traces.sink).id);
        await traces.status();
      }
      const names = (await store.scan({ prefix: "th/", limit: 10 })).map(({ key }) => key.slice(3));
      const cut = (await store.get(segmentDataKey(names[1]!)))!.value;
      await store.commit({
        delete: [segmentDataKey(names[0]!)],
        put: [
          [segmentDataKey(names[1]!), cut.slice(0, cut.length - 40)],
          [segmentDataKey(names[2]!), "["],
          [segmentKey(names[3]!), '{"traces":'],
        ],
      });
      assert.deepEqual(await listed(traces), [ids[4]]);
      for (const id of ids.slice(0, 3)) await assert.rejects(all(traces).get(id), { kind: "not_found" });
      assert.equal((await all(traces).get(ids[4]!)).spanCount, 2);
      await assert.rejects(all(traces).span(spanIdAt(now())), { kind: "not_found" });
    });
  });
}

test("traces: GET /observability/traces shows segments that were written as columns, before they were lines of JSON", async () => {
  const store = createMemoryStore();
  const { rows, shown } = JSON.parse(readFileSync("test/fixtures/stores/traces-columns.json", "utf8"));
  await store.commit({ put: rows });
  const traces = open(store);
  record(traces.sink);
  const ids = shown.map(({ traceId }: { traceId: string }) => traceId);
  assert.deepEqual((await listed(traces)).slice(1), ids);
  const asJson = (value: unknown) => JSON.parse(JSON.stringify(value));
  for (const trace of shown) {
    assert.deepEqual(asJson(await all(traces).get(trace.traceId)), trace);
    for (const span of trace.spans) assert.deepEqual(asJson(await all(traces).span(span.spanId)), span);
  }
  await createTraceRetention(store, { retention: DAY, size: 1e9, logger: silent }).removeOld(Date.now());
  assert.deepEqual((await counters(store)).slice(0, 2), [1, 2]);
});

test("traces: spans that Node cannot deflate, for want of memory, are stored as they are, and hold up none that come later", async (t) => {
  const traces = open(createMemoryStore());
  const refuse = (...values: unknown[]) => (values.at(-1) as (error: Error) => void)(new Error("zlib: memory"));
  const deflate = t.mock.method(zlib, "deflateRaw", refuse as unknown as typeof zlib.deflateRaw);
  syncBuiltinESMExports();
  const first = record(traces.sink).id;
  await traces.status();
  deflate.mock.restore();
  syncBuiltinESMExports();
  const second = record(traces.sink).id;
  const { traceCount, message } = await traces.status();
  assert.deepEqual([deflate.mock.callCount(), traceCount, message], [1, 2, "all runs are recorded"]);
  assert.deepEqual(await listed(traces), [second, first]);
  assert.equal((await all(traces).get(first)).spanCount, 2);
});

test("traces: what is written takes less than a sixth of the characters that GET /observability/traces/:traceId shows", async () => {
  const store = createMemoryStore();
  const traces = open(store);
  const made = Array.from({ length: 200 }, () => record(traces.sink));
  await traces.status();
  const shown = JSON.stringify((await all(traces).get(made[0]!.id)).spans).length;
  const [count, , size] = await counters(store);
  const [row] = await store.scan({ prefix: "td/", limit: 2 });
  assert.deepEqual([count, size], [200, row!.value.length]);
  // It is a twelfth here; how small a text gets depends on the processor and on the zlib of Node.js.
  assert.ok(size! / 200 < shown / 6, `${size! / 200} of ${shown}`);
});

test("traces: a process that is killed while it writes loses a moment, and nothing that was written", async (t) => {
  const file = `${await temporaryFolder(t)}/test.db`;
  const url = (path: string) => JSON.stringify(pathToFileURL(resolve(path)).href);
  const other = otherProcess(
    t,
    `import { openSqliteStore } from ${url("core/storage/sqlite-store.ts")};
     import { createRecorder } from ${url("core/traces/recorder.ts")};
     import { record } from ${url("test/support/spans.ts")};
     import { pino } from "pino";
     const logger = pino({ level: "silent" });
     const store = await openSqliteStore({ file: ${JSON.stringify(file)}, logger });
     const recorder = createRecorder(store, { origin: { service: "T", version: "1", scope: "1" }, process: "p", logger });
     const sink = { live: false, began: (trace) => recorder.began(trace), take: (...given) => recorder.take(...given) };
     for (;;) {
       const ids = Array.from({ length: 50 }, () => record(sink).id);
       await recorder.flush();
       console.log(ids.join(" "));
     }`,
  );
  const written: string[] = [];
  const read = (line: string | undefined) => written.push(...(line?.split(" ") ?? []));
  while (written.length < 1_000) read(await other.line());
  await other.kill();
  for (let line = await other.line(); line !== undefined; line = await other.line()) read(line);
  const store = await openSqliteStore({ file, logger: silent });
  t.after(() => store.close());
  const traces = open(store);
  const { traceCount, spanCount } = await traces.status();
  assert.ok(traceCount >= written.length && spanCount === 2 * traceCount, `${traceCount} of ${written.length}`);
  const kept: string[] = [];
  for (let offset = 0; offset < traceCount; offset += 200) {
    const page = await all(traces).list({ limit: 200, offset });
    kept.push(...page.map(({ traceId }) => traceId));
  }
  assert.deepEqual(kept.toReversed().slice(0, written.length), written);
  assert.equal((await all(traces).get(written.at(-1)!)).spanCount, 2);
});

test("traces: a trace is found among many by the time in its id: what cannot hold it is not read", async () => {
  const inner = createMemoryStore();
  let read = 0;
  const store: Store = {
    ...inner,
    get: (key) => {
      if (key.startsWith("td/")) read++;
      return inner.get(key);
    },
  };
  const traces = open(store);
  const made: HandTrace[] = [];
  // Ahead of the clock: a segment is named by the end of its spans, not by when this machine came to write it.
  const first = Math.ceil(now()) + 60_000;
  for (let index = 0; index < 200; index++) {
    made.push(record(traces.sink, { start: first + 2 * index, took: 0.5 }));
    await traces.status();
  }
  for (const { id, root } of made) {
    read = 0;
    await all(traces).get(id);
    await all(traces).span(root.spanId);
    assert.ok(read <= 6, `${read} reads`);
  }
  read = 0;
  await assert.rejects(all(traces).get(traceIdAt(made[100]!.root.start)), { kind: "not_found" });
  assert.ok(read <= 3, `${read} reads for what is not there`);
});

test("traces: every value comes back as it was, whatever it holds, and text that looks like a row deceives nobody", async () => {
  const store = createMemoryStore();
  const traces = open(store);
  const strange = [
    '",\n["',
    "\ud800 half",
    "\u0000\u001e\u001f\u2028",
    "日本語 😀 \xff",
    "__proto__",
    "x".repeat(70_000),
  ];
  const made: HandTrace[] = [];
  for (let index = 0; index < 300; index++) {
    const trace = new HandTrace(traces.sink, { userId: index % 3 ? `user ${index % 5} é 漢` : undefined });
    const known = made.at(-1);
    const values: Record<string, AttributeValue | undefined> = {
      text: strange[index % strange.length],
      id: known === undefined ? "none" : `${known.id}" ["${known.id}",1`,
      span: known?.root.spanId,
      number: index % 2 ? index / 7 : -index - 1,
      flag: index % 4 === 0,
      list: [`${index % 3}`, 'a"b'],
      ...(index % 10 === 0 && { [`own ${index}`]: index }),
    };
    trace.end(trace.child({ name: `name ${index % 7}` }), { attributes: values as Record<string, AttributeValue> });
    trace.end(trace.root, index % 6 === 0 ? { status: { code: 2, message: strange[index % 5] } } : {});
    made.push(trace);
    const { traceId, spans } = await all(traces).get(trace.id);
    assert.equal(traceId, trace.id);
    assert.equal(spans.length, 2);
    const { "entity.id": _id, "entity.type": _type, "entity.name": _name, ...attributes } = spans[1]!.attributes;
    const given = Object.entries(values).filter(([, value]) => value !== undefined);
    assert.deepEqual(attributes, Object.fromEntries(given));
    assert.deepEqual(spans[0]!.status, trace.root.status);
    if (known !== undefined) assert.equal((await all(traces).span(known.root.spanId)).traceId, known.id);
  }
  await traces.status();
  assert.deepEqual(
    await listed(traces, 200),
    made
      .map(({ id }) => id)
      .reverse()
      .slice(0, 200),
  );
});

test("traces: a text that a span has in common with the first one of its trace is stored once, and comes back in both", async () => {
  const store = createMemoryStore();
  const traces = open(store);
  const answer = randomBytes(3_000).toString("base64");
  /** How often each segment has room for it. */
  const stored = async () => {
    await traces.status();
    const rows = await store.scan({ prefix: "td/", limit: 100 });
    return rows.map(({ value }) => Math.floor(value.length / answer.length));
  };
  const attributesOf = async ({ id }: HandTrace) =>
    (await all(traces).get(id)).spans.map(({ attributes }) => [attributes.answer, attributes.place]);
  // The second differs where the first and the third do not.
  for (const [index, of] of [answer, "none", answer].entries()) {
    const trace = new HandTrace(traces.sink);
    trace.end(trace.child(), { attributes: { answer, place: `c-${index}` } });
    trace.end(trace.root, { attributes: { answer: of, place: "root" } });
    assert.deepEqual(await stored(), Array(index + 1).fill(1));
    assert.deepEqual(await attributesOf(trace), [
      [of, "root"],
      [answer, `c-${index}`],
    ]);
  }
  // A long one, whose spans are handed over before its root has ended.
  const long = new HandTrace(traces.sink);
  for (const place of ["a", "b"]) long.end(long.child(), { attributes: { answer, place } });
  long.handOverAll();
  assert.deepEqual(await stored(), [1, 1, 1, 1]);
  long.end(long.child(), { attributes: { answer, place: "c" } });
  long.end(long.root, { attributes: { answer, place: "root" } });
  assert.deepEqual(await stored(), [1, 1, 1, 1, 1]);
  assert.deepEqual((await attributesOf(long)).toSorted(), [
    [answer, "a"],
    [answer, "b"],
    [answer, "c"],
    [answer, "root"],
  ]);
});

test("traces: while the store is away nothing waits and little is kept; what was lost is counted and said, and it goes on by itself", async () => {
  const inner = createMemoryStore();
  let away = true;
  const store: Store = {
    ...inner,
    commit: async (commit) => {
      if (away) throw unavailable("storage is unavailable: the disk is full");
      return inner.commit(commit);
    },
  };
  const { logger, lines } = recordingLogger();
  const traces = open(store, logger);
  // By chance, because what repeats itself takes no room.
  const content = () => randomBytes(6 * 1024).toString("base64");
  const write = (): string => {
    const trace = new HandTrace(traces.sink);
    trace.end(trace.root, { attributes: { "gen_ai.input.messages": content() } });
    return trace.id;
  };
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const held = () => {
    collect();
    return process.memoryUsage().heapUsed + process.memoryUsage().external;
  };
  const first = write();
  const before = held();
  for (let index = 0; index < 10_000; index++) {
    write();
    if (index % 1000 === 0) await sleep(1);
  }
  const grown = held() - before;
  assert.ok(grown < 64 * 1024 * 1024, `${Math.round(grown / 1024 / 1024)} MiB`);
  const { message, traceCount } = await traces.status();
  const lost = Number(/(\d+) were not kept/.exec(message)![1]);
  assert.ok(lost > 8_000 && traceCount + lost === 10_001, message);
  assert.match(message, /the store does not take traces at the moment/);
  assert.equal((await all(traces).get(first)).spanCount, 1);
  away = false;
  await traces.status();
  assert.equal(
    (await traces.status()).message,
    `all runs are recorded; ${lost} were not kept, for the store did not take them as fast`,
  );
  const after = write();
  await traces.close();
  const again = open(inner);
  assert.ok((await listed(again)).includes(after));
  assert.equal((await again.status()).traceCount, traceCount + 1);
  const said = (part: string) => lines.filter((line) => line.includes(part)).length;
  assert.deepEqual(
    [said("cannot be written"), said("are not kept"), said("written again")],
    [1, 1, 1],
    lines.join("\n"),
  );
});

test("traces: a root that ended before what is below it is counted once, and its trace runs until the last of them ends", async () => {
  const traces = open(createMemoryStore());
  const trace = new HandTrace(traces.sink, { entity: FLOW });
  const late = trace.child();
  for (let index = 0; index < 3; index++) trace.end(trace.child());
  trace.end(trace.root);
  trace.handOverAll();
  const [running] = await all(traces).list({ limit: 1, offset: 0 });
  assert.deepEqual([running?.status, running?.spanCount], ["running", 5]);
  trace.end(late);
  const [over] = await all(traces).list({ limit: 1, offset: 0 });
  assert.deepEqual([over?.status, over?.spanCount, over?.rootSpan.spanId], ["completed", 5, trace.root.spanId]);
  assert.equal((await all(traces).get(trace.id)).spanCount, 5);
});
