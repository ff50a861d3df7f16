/** Pages of executions on every engine, out of rows made here: what is listed, in which order, and while it changes. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { ServiceError } from "../../core/lib/errors.ts";
import type { Store } from "../../core/storage/store.ts";
import type { ExecutionStatus } from "../../core/workflows/journal/entries.ts";
import {
  type ExecutionListQuery,
  listExecutions,
  RemoteExecutions,
  type RunningHere,
} from "../../core/workflows/list/list.ts";
import {
  ENGINES,
  finish,
  outlineOf,
  putExecutions,
  recordOfSample,
  restRows,
  resumeElsewhere,
  type Sample,
  startOf,
  watchedStore,
} from "../support/executions.ts";

const T = Date.parse("2026-11-20T08:00:00Z");
const STATUSES: readonly ExecutionStatus[] = ["completed", "suspended", "error", "cancelled"];
const here = (sample: Sample): RunningHere => ({
  start: startOf(sample),
  record: () => ({ text: JSON.stringify(recordOfSample(sample)), repeats: [] }),
});

async function page(
  store: Store,
  query: Partial<ExecutionListQuery> = {},
  running: () => Iterable<RunningHere> = () => [],
) {
  const remote = store.kind === "postgres" ? new RemoteExecutions(store, () => new Set()) : null;
  const sources = { store, running, remote, outlineOf };
  const { json } = await listExecutions({ limit: 50, offset: 0, ...query }, sources);
  return JSON.parse(json) as Record<string, unknown>[];
}

const idsOf = (records: Record<string, unknown>[]) => records.map(({ id }) => id);
const idOf = (sample: Sample) => startOf(sample).id;

/** Numbers that come the same every time. */
function dice(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return Math.floor((state / 0x80000000) * below);
  };
}

const USERS = [undefined, undefined, "ada", "bob/x", "ada "];
const WORKFLOWS = ["expense", "expenses", "pipeline"];
const METADATA = [undefined, { region: "eu", tier: 1 }, { region: "us" }, { region: { a: [1] } }, { "": null }];

/** Of all kinds, some of one time, not in the order of their numbers. */
function samplesOf(count: number, seed = 1): Sample[] {
  const next = dice(seed);
  return Array.from({ length: count }, (_, index): Sample => {
    const [userId, metadata] = [USERS[next(5)], METADATA[next(5)]];
    return {
      number: index + 1,
      status: STATUSES[next(4)]!,
      at: T + next(count / 2) * 10,
      workflowId: WORKFLOWS[next(3)]!,
      ...(userId !== undefined && { userId }),
      ...(metadata !== undefined && { metadata }),
    };
  });
}

function expected(samples: readonly Sample[], query: Partial<ExecutionListQuery>): string[] {
  const { workflowId, status, userId, owner, from = 0, to = Number.POSITIVE_INFINITY, metadata } = query;
  const { limit = 50, offset = 0 } = query;
  return samples
    .filter((sample) => workflowId === undefined || sample.workflowId === workflowId)
    .filter((sample) => status === undefined || sample.status === status)
    .filter((sample) => userId === undefined || sample.userId === userId)
    .filter((sample) => owner === undefined || (sample.userId ?? null) === owner)
    .filter((sample) => sample.at >= from && sample.at <= to)
    .filter((sample) =>
      [...(metadata ?? [])].every(([key, values]) =>
        values.some(
          (value) => Object.hasOwn(sample.metadata ?? {}, key) && isDeepStrictEqual(value, sample.metadata![key]),
        ),
      ),
    )
    .sort((a, b) => b.at - a.at || b.number - a.number)
    .slice(offset, offset + limit)
    .map(idOf);
}

const QUERIES: readonly Partial<ExecutionListQuery>[] = [
  {},
  { limit: 1 },
  { limit: 500 },
  { offset: 299 },
  { offset: 300 },
  { offset: 100_000 },
  { limit: 7, offset: 13 },
  { workflowId: "expense" },
  { workflowId: "expense", offset: 50, limit: 20 },
  { workflowId: "never" },
  { status: "completed", offset: 10 },
  { status: "suspended", workflowId: "pipeline" },
  { userId: "ada" },
  { userId: "bob/x", status: "error" },
  { userId: "ada ", workflowId: "expenses", limit: 3, offset: 2 },
  { userId: "bob" },
  { owner: "ada" },
  { owner: "ada", userId: "ada", limit: 5 },
  { owner: "ada", userId: "bob/x" },
  { owner: null },
  { owner: null, workflowId: "expense", status: "completed", offset: 2 },
  { owner: null, userId: "ada" },
  { from: T + 500 },
  { to: T + 500 },
  { from: T + 500, to: T + 500 },
  { from: T + 500, to: T + 499 },
  { from: T + 499.5, to: T + 510.5 },
  { from: -5, to: -1 },
  { from: -5, to: 1e300 },
  { from: 1e300 },
  { from: T + 100, to: T + 900, status: "cancelled", workflowId: "expense" },
  { metadata: new Map([["region", ["eu"]]]) },
  { metadata: new Map([["region", ["eu", "us"]]]), limit: 10, offset: 30 },
  {
    metadata: new Map<string, unknown[]>([
      ["region", ["eu"]],
      ["tier", ["1", 1]],
    ]),
    status: "completed",
  },
  { metadata: new Map([["region", [{ a: [1] }]]]), userId: "ada" },
  { metadata: new Map([["region", [{ a: [2] }]]]) },
  { metadata: new Map([["", [null]]]) },
  { metadata: new Map([["toString", ["eu"]]]) },
  { metadata: new Map([["amount", [1]]]) },
  { metadata: new Map([["region", ["eu"]]]), owner: null, from: T + 300 },
];

for (const engine of ENGINES) {
  describe(`executions on ${engine.name}`, () => {
    test("GET /workflows/executions: each filter, alone and with others, gives what matches, newest first", async (t) => {
      const store = await engine.open(t);
      const samples = samplesOf(300);
      await putExecutions(store, samples);
      for (const query of QUERIES) {
        assert.deepEqual(idsOf(await page(store, query)), expected(samples, query), `${JSON.stringify(query)}`);
      }
    });

    test("GET /workflows/executions: a record is given as it was written", async (t) => {
      const store = await engine.open(t);
      const samples = STATUSES.map(
        (status, index): Sample => ({ number: index + 1, status, at: T - index, userId: "ada" }),
      );
      await putExecutions(store, samples);
      assert.deepEqual(await page(store), samples.map(recordOfSample));
    });

    test("GET /workflows/executions: deep pages are in the same order as shallow ones", async (t) => {
      const store = await engine.open(t);
      const samples = samplesOf(3_000, 2).map(
        (sample, index): Sample => (index % 9 < 6 ? { ...sample, status: "completed" } : sample),
      );
      const running = samples.splice(1_000, 400).map((sample): Sample => ({ ...sample, status: "running" }));
      await putExecutions(store, samples);
      const all = [...samples, ...running];
      for (const offset of [0, 255, 256, 1_023, 1_280, 1_281, 2_000, 2_777, 2_999, 3_000, 3_001]) {
        const records = await page(store, { offset, limit: 10 }, () => running.map(here));
        assert.deepEqual(idsOf(records), expected(all, { offset, limit: 10 }), `offset ${offset}`);
      }
      for (const query of [
        { status: "completed", offset: 1_500 },
        { status: "running", offset: 300 },
      ] as const) {
        assert.deepEqual(idsOf(await page(store, query, () => running.map(here))), expected(all, query));
      }
    });

    test("GET /workflows/executions: an offset that is too large is 400", async (t) => {
      const store = await engine.open(t);
      await assert.rejects(page(store, { offset: 100_001 }), (error) => {
        assert.ok(error instanceof ServiceError);
        assert.deepEqual(
          [error.kind, error.message],
          ["invalid_input", "offset: more than 100000 executions cannot be skipped"],
        );
        return true;
      });
    });

    test("GET /workflows/executions: those that run here match by the same filters, and stand between those that rest", async (t) => {
      const store = await engine.open(t);
      const samples = samplesOf(200, 3).map(
        (sample, index): Sample => (index % 3 === 0 ? { ...sample, status: "running" } : sample),
      );
      const running = samples.filter(({ status }) => status === "running");
      await putExecutions(
        store,
        samples.filter(({ status }) => status !== "running"),
      );
      for (const query of [
        ...QUERIES,
        { status: "running" },
        { status: "running", userId: "ada", limit: 3 },
      ] as const) {
        const records = await page(store, query, () => running.map(here));
        assert.deepEqual(idsOf(records), expected(samples, query), `${JSON.stringify(query)}`);
      }
    });

    test("GET /workflows/executions: one that is resumed or ends while the page is read is on it once", async (t) => {
      const rested = samplesOf(40, 4).map((sample): Sample => ({ ...sample, status: "completed" }));
      const other: Sample = { number: 99, status: "suspended", at: T + 75 };
      const ids = expected([...rested, other], {});
      const resumed = here({ ...other, status: "running" });

      const early = await engine.open(t);
      await putExecutions(early, [...rested, other]);
      let running: RunningHere[] = [];
      const resume = watchedStore(early, async () => {
        await resumeElsewhere(early, other);
        running = [resumed];
      });
      const first = await page(resume, {}, () => running);
      assert.deepEqual(idsOf(first), ids);
      assert.equal(first.find(({ id }) => id === idOf(other))?.status, "running");

      const late = await engine.open(t);
      await putExecutions(late, [...rested, { ...other, status: "running" }]);
      running = [resumed];
      const end = watchedStore(late, async () => {
        await finish(late, other);
        running = [];
      });
      const second = await page(end, {}, () => running);
      assert.deepEqual(idsOf(second), ids);
      assert.equal(second.find(({ id }) => id === idOf(other))?.status, "completed");
    });

    test("GET /workflows/executions: one that has come to rest still runs until that is on disk", async (t) => {
      const store = await engine.open(t);
      const other: Sample = { number: 5, status: "running", at: T };
      await putExecutions(store, [other]);
      const resting: RunningHere = { start: startOf(other), record: () => null };
      for (const query of [{}, { status: "running" }] as const) {
        assert.deepEqual(await page(store, query, () => [resting]), [recordOfSample(other)]);
      }
      await finish(store, other);
      assert.deepEqual(await page(store, { status: "running" }, () => [resting]), []);
      assert.deepEqual(
        (await page(store, {}, () => [resting])).map(({ status }) => status),
        ["completed"],
      );
    });

    test("GET /workflows/executions?status=: one that goes on while the page is read is left out, and the page is full", async (t) => {
      const store = await engine.open(t);
      const samples = Array.from(
        { length: 30 },
        (_, index): Sample => ({ number: index + 1, status: "suspended", at: T + index }),
      );
      await putExecutions(store, samples);
      const last = samples.at(-1)!;
      const ended = watchedStore(store, () => finish(store, last));
      assert.deepEqual(
        idsOf(await page(ended, { status: "suspended", limit: 5 })),
        expected(samples.slice(0, -1), { limit: 5 }),
      );

      const running = samples.map((sample): Sample => ({ ...sample, status: "running" }));
      const starts = watchedStore(store);
      assert.deepEqual(
        idsOf(await page(starts, { status: "running", limit: 500 }, () => running.map(here))).length,
        30,
      );
    });

    test("GET /workflows/executions: one that is removed while the page is read is left out, and the page is full", async (t) => {
      const store = await engine.open(t);
      const samples = Array.from(
        { length: 60 },
        (_, index): Sample => ({ number: index + 1, status: "completed", at: T + index }),
      );
      await putExecutions(store, samples);
      const between = watchedStore(store, async () => {
        await store.commit({ delete: samples.slice(57).flatMap((sample) => restRows(sample).map(([key]) => key)) });
      });
      assert.deepEqual(idsOf(await page(between, { limit: 10 })), expected(samples.slice(0, 57), { limit: 10 }));
    });

    test("GET /workflows/executions: a page reads as much with many executions as with few", async (t) => {
      const read = async (count: number, query: Partial<ExecutionListQuery>) => {
        const store = await engine.open(t);
        const samples = Array.from(
          { length: count },
          (_, index): Sample => ({
            number: index + 1,
            status: STATUSES[index % 4]!,
            at: T + index,
            workflowId: WORKFLOWS[index % 3]!,
            userId: `user-${index % 5}`,
          }),
        );
        await putExecutions(store, samples);
        const watched = watchedStore(store);
        assert.equal((await page(watched, query)).length, query.limit);
        return watched.read;
      };
      for (const query of [
        { limit: 20 },
        { limit: 20, offset: 5, workflowId: "pipeline" },
        { limit: 10, status: "completed", userId: "user-1" },
        { limit: 10, from: T + 20, to: T + 60 },
      ] as const) {
        assert.equal(await read(2_400, query), await read(600, query), JSON.stringify(query));
      }
    });
  });
}

const shared = ENGINES.filter(({ name }) => name === "postgres:");

for (const engine of shared) {
  async function withOthers(t: TestContext) {
    const store = await engine.open(t);
    const samples = samplesOf(120, 5).map(
      (sample, index): Sample => (index % 4 === 0 ? { ...sample, status: "running" } : sample),
    );
    const own = samples.filter(({ status, number }) => status === "running" && number % 8 === 1);
    await putExecutions(store, samples);
    return { store, samples, running: () => own.map(here) };
  }

  test(`GET /workflows/executions on ${engine.name} lists what other processes run, folded from the journal`, async (t) => {
    const { store, samples, running } = await withOthers(t);
    for (const query of [
      ...QUERIES,
      { status: "running" },
      { status: "running", workflowId: "expense", limit: 4 },
    ] as const) {
      assert.deepEqual(idsOf(await page(store, query, running)), expected(samples, query), JSON.stringify(query));
    }
    const other = samples.find(({ status, number }) => status === "running" && number % 8 === 5)!;
    const records = await page(store, { status: "running" }, running);
    assert.deepEqual(
      records.find(({ id }) => id === idOf(other)),
      recordOfSample(other),
    );
  });

  test(`GET /workflows/executions on ${engine.name} shows one that another process resumed as it is now`, async (t) => {
    const store = await engine.open(t);
    const sample: Sample = {
      number: 7,
      status: "suspended",
      at: T,
      workflowId: "expense",
      userId: "ada",
      metadata: { a: 1 },
    };
    await putExecutions(store, [sample, { number: 8, status: "completed", at: T + 1 }]);
    await resumeElsewhere(store, sample);
    const [record, ...rest] = await page(store, { userId: "ada", metadata: new Map([["a", [1]]]) });
    assert.deepEqual(rest, []);
    assert.deepEqual([record?.id, record?.status, record?.suspension], [idOf(sample), "running", undefined]);
    assert.deepEqual(idsOf(await page(store, { status: "running" })), [idOf(sample)]);
    assert.deepEqual(await page(store, { status: "suspended" }), []);
    const ended = watchedStore(store, async () => {
      await store.commit({ put: restRows({ ...sample, status: "completed" }), delete: [`xo/${"7".padStart(9, "0")}`] });
    });
    assert.deepEqual(await page(ended, { status: "running" }), []);
    assert.equal((await page(store))[1]?.status, "completed");
  });
}
