/** Contract, "Observability": traces and spans on every store. What a tracer would hand over is made by hand. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { validators } from "../../generated/all-validators.js";
import { STORES } from "../support/memory-stores.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { ASSISTANT, FLOW, HandTrace, now, record, spanIdAt, traceIdAt, WRITER } from "../support/spans.ts";

/** ISO 8601, to the microsecond. */
const micros = (time: number): string => {
  const rest = Math.floor((time - Math.floor(time)) * 1000);
  return new Date(time).toISOString().replace("Z", `${String(rest).padStart(3, "0")}Z`);
};

for (const store of STORES) {
  describe(`GET /observability/traces on ${store.name}`, () => {
    const ends: (() => unknown)[] = [];
    let service: TestService;
    before(async () => {
      const test = { after: (end: () => unknown) => void ends.push(end) };
      const manifest = manifestWith({}, { store: await store.url(test), observability: { sample: 1 } });
      service = await startService(test, manifest);
    });
    after(async () => {
      for (const end of ends) await end();
    });

    const get = async (path: string): Promise<Loose> => {
      const reply = await service.get(`/observability${path}`);
      const body = (await reply.json()) as Loose;
      assert.equal(reply.status, 200, JSON.stringify(body));
      return body.data;
    };
    const refused = async (path: string): Promise<[number, string | null, string]> => {
      const reply = await service.get(`/observability${path}`);
      const { error } = (await reply.json()) as Loose;
      return [reply.status, reply.headers.get("x-error-code"), error];
    };
    const ids = async (query: string): Promise<string[]> =>
      (await get(`/traces?${query}`)).traces.map(({ traceId }: Loose) => traceId);
    const sink = () => service.service.traces.sink;
    /** Resolves when everything that was recorded is in the store: the status says what is written. */
    const written = () => get("/status");

    test("GET /observability/traces gives each trace with its spans, and without them where spans=false", async () => {
      const entity = { ...FLOW, id: "spans-of-lists" };
      const trace = new HandTrace(sink(), { entity });
      const child = trace.child({ name: "step one", kind: 0, entity });
      const listed = async (query = "") => (await get(`/traces?entityId=${entity.id}${query}`)).traces;
      const ended = (spans: Loose[]) => spans.map(({ name, endTime }) => [name, endTime !== undefined]);
      trace.end(child);
      const [running] = await listed();
      assert.equal(running.status, "running");
      assert.deepEqual(ended(running.spans.filter(({ spanId }: Loose) => spanId === child.spanId)), [
        ["step one", true],
      ]);
      trace.end(trace.root);
      await written();
      const [whole] = await listed();
      assert.deepEqual(whole.spans, (await get(`/traces/${trace.id}`)).spans);
      assert.deepEqual(whole.spans[0], whole.rootSpan);
      const [bare] = await listed("&spans=false");
      assert.equal(bare.spans, undefined);
      const { spans: _spans, ...rest } = whole;
      assert.deepEqual(bare, rest);
    });

    test("GET /observability/traces/:traceId gives what was recorded a moment ago, and the same once it is written", async () => {
      const trace = new HandTrace(sink(), { entity: FLOW });
      const start = Math.floor(trace.root.start);
      const step = trace.child({ name: "step one", kind: 0 });
      const agent = trace.child({ name: "invoke_agent Writer", kind: 0, entity: WRITER, parentSpanId: step.spanId });
      const chat = trace.child({ parentSpanId: agent.spanId, entity: WRITER });
      trace.end(chat, {
        attributes: {
          "gen_ai.request.model": "ech\u00f6 \u{1f600}\u2028",
          "gen_ai.response.finish_reasons": ["stop"],
          ok: true,
          n: 1.5,
        },
        events: [{ name: "retry", time: start + 2, attributes: { attempt: 1 } }],
        end: chat.start + 1.2345,
      });
      trace.end(agent, { attributes: { "gen_ai.agent.name": "Writer" } });
      trace.end(step, { status: { code: 2, message: 'it said "no"\n' } });
      const link = { traceId: traceIdAt(1), spanId: spanIdAt(1) };
      trace.end(trace.root, { links: [link], end: start + 900 });

      const detail = await get(`/traces/${trace.id}`);
      assert.ok(validators.TraceDetail(detail), JSON.stringify(validators.TraceDetail.errors));
      assert.equal(detail.spanCount, 4);
      const [flow, one, writer, said] = detail.spans as [Loose, Loose, Loose, Loose];
      assert.deepEqual(
        [flow, one, writer, said].map(({ name, parentSpanId }: Loose) => [name, parentSpanId]),
        [
          ["invoke_agent Flow", null],
          ["step one", flow.spanId],
          ["invoke_agent Writer", one.spanId],
          ["chat echo", writer.spanId],
        ],
      );
      assert.deepEqual(said.attributes, {
        "entity.id": "writer",
        "entity.type": "agent",
        "entity.name": "Writer",
        "gen_ai.request.model": "ech\u00f6 \u{1f600}\u2028",
        "gen_ai.response.finish_reasons": ["stop"],
        ok: true,
        n: 1.5,
      });
      assert.ok(Math.abs(said.duration - 1.2345) < 0.0011, String(said.duration));
      assert.deepEqual(said.events, [{ name: "retry", timestamp: micros(start + 2), attributes: { attempt: 1 } }]);
      assert.deepEqual(said.status, { code: 1 });
      assert.deepEqual(one.status, { code: 2, message: 'it said "no"\n' });
      assert.deepEqual(flow.links, [link]);
      assert.match(flow.startTime, /\.\d{6}Z$/);
      assert.ok(Math.abs(Date.parse(flow.startTime) - trace.root.start) <= 1, "to the microsecond");
      assert.equal(flow.endTime, micros(start + 900));
      assert.deepEqual(flow.resource, { "service.name": "Test", "service.version": "1.0.0" });
      assert.equal(flow.instrumentationScope.name, "penstock");

      const depths = (nodes: Loose[]): Loose[] =>
        nodes.flatMap(({ name, depth, children }) => [[name, depth], ...depths(children)]);
      assert.deepEqual(depths(detail.tree), [
        ["invoke_agent Flow", 0],
        ["step one", 1],
        ["invoke_agent Writer", 2],
        ["chat echo", 3],
      ]);
      assert.deepEqual(await get(`/spans/${said.spanId}`), said);
      await written();
      assert.deepEqual(await get(`/traces/${trace.id}`), detail);
      for (const span of detail.spans) assert.deepEqual(await get(`/spans/${span.spanId}`), span);
    });

    test("a trace that goes on is there from its beginning, with the spans that are open, and in the list as running", async () => {
      const trace = new HandTrace(sink(), { entity: WRITER });
      const child = trace.child();
      const [first] = (await get("/traces?limit=1")).traces;
      assert.deepEqual([first.traceId, first.status, first.spanCount], [trace.id, "running", 2]);
      assert.equal("endTime" in first, false);
      assert.deepEqual(await ids("status=running&entityId=writer"), [trace.id]);
      assert.deepEqual(await ids("status=running&entityId=assistant"), []);
      const open = await get(`/spans/${child.spanId}`);
      assert.equal("endTime" in open || "duration" in open, false);
      assert.equal((await get(`/traces/${trace.id}`)).spanCount, 2);
      trace.end(child);
      trace.end(trace.root);
      assert.deepEqual(await ids("status=running"), []);
      assert.equal((await get("/traces?limit=1")).traces[0].status, "completed");
    });

    test("GET /observability/traces: newest first, by pages, filtered by entity, status and time", async () => {
      await written();
      // Less than half a microsecond before a whole millisecond, to which it is rounded.
      const from = Math.floor(now()) + 0.9997;
      const shown = (time: number) => Math.floor(Math.round(time * 1000) / 1000);
      const made: HandTrace[] = [];
      for (let index = 0; index < 60; index++) {
        const entity = index % 3 === 0 ? FLOW : ASSISTANT;
        made.push(record(sink(), { entity, failed: index % 4 === 0, start: from + index }));
        // Half of them are in the store by then, in several segments.
        if (index % 10 === 9) await get(`/traces/${made.at(-1)!.id}`);
        if (index === 29) await written();
      }
      const newest = made.map(({ id }) => id).reverse();
      const since = `from=${new Date(Math.floor(from)).toISOString()}`;
      const page = await get(`/traces?${since}`);
      assert.ok(validators.TraceList(page), JSON.stringify(validators.TraceList.errors));
      assert.equal(page.count, 50);
      assert.deepEqual(
        page.traces.map(({ traceId }: Loose) => traceId),
        newest.slice(0, 50),
      );
      assert.deepEqual(await ids(`${since}&limit=200`), newest);
      const paged: string[] = [];
      for (let offset = 0; offset < 60; offset += 7) paged.push(...(await ids(`${since}&limit=7&offset=${offset}`)));
      assert.deepEqual(paged, newest);
      assert.deepEqual(await ids(`${since}&offset=60`), []);
      const failed = newest.filter((_, index) => (59 - index) % 4 === 0);
      assert.deepEqual(await ids(`${since}&status=error&limit=200`), failed);
      assert.deepEqual(await ids(`${since}&status=error&limit=4&offset=5`), failed.slice(5, 9));
      const flows = newest.filter((_, index) => (59 - index) % 3 === 0);
      for (const query of ["entityType=workflow", "entityId=flow", "entityType=workflow&entityId=flow"]) {
        assert.deepEqual(await ids(`${since}&${query}&limit=200`), flows, query);
      }
      assert.deepEqual(await ids(`${since}&entityType=agent&entityId=flow`), []);
      assert.deepEqual(await ids("entityId=of-nobody"), []);
      const middle = made[30]!.root.start;
      const until = `to=${new Date(shown(middle)).toISOString()}`;
      const early = made.filter(({ root }) => shown(root.start) <= shown(middle)).map(({ id }) => id);
      assert.deepEqual(await ids(`${since}&${until}&limit=200`), early.reverse());
      assert.deepEqual(await ids("from=1900-01-01&to=9999-12-31&limit=60"), newest);
      assert.deepEqual(await ids("from=9999-01-01"), []);
      assert.deepEqual(await ids("to=1900-01-01"), []);
    });

    test("a long trace is one trace, though its spans are handed over in parts, and is found by every span", async () => {
      const trace = new HandTrace(sink(), { entity: FLOW, start: now() - 60_000 });
      const spans = [trace.root.spanId];
      for (let part = 0; part < 3; part++) {
        for (let index = 0; index < 5; index++) {
          const start = trace.root.start + 10_000 * part + index;
          const span = trace.child({
            start,
            name: `step ${part}`,
            entity: part === 0 ? WRITER : FLOW,
            spanId: spanIdAt(start),
          });
          trace.end(span, { end: start + 1 });
          spans.push(span.spanId);
        }
        trace.handOverAll();
        assert.equal((await get(`/traces/${trace.id}`)).spanCount, 1 + 5 * (part + 1));
        await get("/traces?limit=1");
      }
      await written();
      const last = trace.child({ name: "the last" });
      trace.end(trace.root);
      trace.end(last);
      spans.push(last.spanId);
      await written();
      const detail = await get(`/traces/${trace.id}`);
      assert.deepEqual(
        detail.spans.map(({ spanId }: Loose) => spanId),
        spans,
      );
      assert.equal(detail.tree.length, 1);
      assert.equal(detail.tree[0].children.length, 16);
      for (const spanId of spans) assert.equal((await get(`/spans/${spanId}`)).traceId, trace.id);
      const [listed] = (await get("/traces?limit=1")).traces;
      assert.deepEqual([listed.traceId, listed.spanCount, listed.rootSpan.spanId], [trace.id, 17, spans[0]]);
      // The writer worked in the first part only.
      assert.ok((await ids("entityId=writer")).includes(trace.id));
    });

    test("traces that continue a caller's have its id, and are found by it together", async () => {
      const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
      const parentSpanId = "00f067aa0ba902b7";
      const one = record(sink(), { traceId, parentSpanId });
      await written();
      const other = record(sink(), { traceId, parentSpanId, entity: FLOW, start: now() - 30_000 });
      await written();
      const detail = await get(`/traces/${traceId}`);
      assert.equal(detail.spanCount, 4);
      assert.deepEqual(
        detail.tree.map(({ spanId, parentSpanId: above, depth }: Loose) => [spanId, above, depth]),
        [other, one].map(({ root }) => [root.spanId, parentSpanId, 0]),
      );
      for (const { root } of [one, other]) assert.equal((await get(`/spans/${root.spanId}`)).traceId, traceId);
    });

    test("what there is no trace or span of is 404, and a query that does not parse 400", async () => {
      const absent = [traceIdAt(now()), traceIdAt(1), "f".repeat(32), "0".repeat(32), "x", "A".repeat(32), "%2e%2e"];
      for (const id of absent) assert.deepEqual((await refused(`/traces/${id}`)).slice(0, 2), [404, "not_found"], id);
      const spans = [spanIdAt(now()), "f".repeat(16), "0".repeat(16), "x", "1".repeat(300)];
      for (const id of spans) assert.deepEqual((await refused(`/spans/${id}`)).slice(0, 2), [404, "not_found"], id);
      for (const [query, message] of [
        ["limit=201", /limit must be <= 200/],
        ["limit=0", /limit must be >= 1/],
        ["limit=ten", /limit/],
        ["offset=-1", /offset/],
        ["status=foo", /status must be (equal to )?one of/],
        ["entityType=tree", /entityType/],
        ["from=yesterday", /from must be an ISO 8601/],
        ["to=2026-02-30", /to must be an ISO 8601/],
      ] as const) {
        const [status, code, error] = await refused(`/traces?${query}`);
        assert.deepEqual([status, code], [400, "invalid_input"], query);
        assert.match(error, message);
      }
    });

    test("GET /observability/traces/:traceId/logs and spans/:spanId/logs: none where nothing was said, 404 where nothing was traced", async () => {
      const trace = record(sink());
      const none = { logs: [], count: 0 };
      assert.deepEqual(await get(`/traces/${trace.id}/logs`), none);
      assert.deepEqual(await get(`/spans/${trace.root.spanId}/logs`), none);
      assert.equal((await refused(`/traces/${traceIdAt(now())}/logs`))[0], 404);
      assert.equal((await refused(`/spans/${spanIdAt(now())}/logs`))[0], 404);
    });

    test("GET /observability/status counts what is kept, written or not", async () => {
      const before = await get("/status");
      assert.ok(validators.ObservabilityStatus(before), JSON.stringify(validators.ObservabilityStatus.errors));
      record(sink());
      record(sink());
      const counted = await get("/status");
      assert.equal(counted.traceCount, before.traceCount + 2);
      assert.equal(counted.spanCount, before.spanCount + 4);
      assert.equal(counted.enabled, true);
      assert.equal(counted.storage, store.name.slice(0, -1));
      const row = await service.service.store.get("n/t/traces");
      assert.equal(Number(row?.value), counted.traceCount);
    });
  });
}
